"""Pods with a share, from the decision until the binder has bound them: the request to the binder, and its end."""
