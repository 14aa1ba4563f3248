"""Admission: the built-in plugins and the webhooks that every write passes."""
