"""What kube-controller-manager and kube-scheduler do, for the embedded cluster."""
