"""What document 002 tells people to paste into its two files for a third pool."""

LARGE_NODE = """
- role: worker
  labels:
    node-pool: large
"""
LARGE_POOL = """
large:
  gpuProduct: NVIDIA-H200
  gpuCount: 4
  gpuMemory: 71680
"""
