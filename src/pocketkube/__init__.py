"""A Kubernetes in one process: API server, controllers, scheduler and kubelets."""
