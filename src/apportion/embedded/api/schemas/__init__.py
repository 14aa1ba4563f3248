"""Structural schemas of custom kinds: defaulting, pruning, validation."""
