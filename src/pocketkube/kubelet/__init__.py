"""A kubelet for the embedded cluster: containers are simulated, or run as child processes."""
