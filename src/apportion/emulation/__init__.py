"""What is emulated about GPUs: the agent's driver, `nvidia-smi`, the simulator, and GPUs of embedded clusters."""
