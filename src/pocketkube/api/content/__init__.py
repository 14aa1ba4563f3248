"""The built-in kinds: their fields, decoding, defaults and conversion between versions."""
