"""The Common Expression Language (CEL), as far as Kubernetes uses it."""
