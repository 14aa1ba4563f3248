"""`apportion demo`: dynamic MIG slices on an embedded cluster, step by step, with every result verified."""
