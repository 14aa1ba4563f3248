"""The emulated driver: GPUs in a file, which GPUs a node has, and failures on demand."""
