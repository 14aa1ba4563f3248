"""The kubelet: device plugins, registration, and what its device checkpoint records."""
