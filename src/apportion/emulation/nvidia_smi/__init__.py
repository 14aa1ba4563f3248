"""`nvidia-smi` for emulated GPUs: what there is to see, and the texts that people and scripts read.

A `Machine` is what is seen on a node, or in one container of it. From it come the table, the list and the
answers to queries, in Python and as a POSIX shell script that runs in any image.
"""
