"""Stored objects: the store, writing and deleting, lists and watches."""
