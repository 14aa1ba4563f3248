"""What is emulated about GPUs, so that everything runs without one."""
