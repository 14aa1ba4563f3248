"""What is emulated about GPUs: the driver of the node agent, `nvidia-smi`, and the simulator that labels nodes."""
