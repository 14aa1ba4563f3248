"""A kubelet for the embedded cluster: pods of our image run as child processes, all others are simulated."""
