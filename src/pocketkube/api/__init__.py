"""A Kubernetes API server in one process: kubectl and any client library talk to it."""
