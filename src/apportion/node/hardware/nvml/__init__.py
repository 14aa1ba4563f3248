"""The driver for NVIDIA GPUs, through NVML."""
