"""Custom kinds: definitions, and defaulting, pruning and validation by their structural schemas."""
