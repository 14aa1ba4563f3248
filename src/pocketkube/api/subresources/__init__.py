"""Subresources with a behaviour of their own: binding, eviction, scale, logs, tokens.

`status` and the other parts that are fields of the object itself are ordinary updates (`storage.writer`).
"""
