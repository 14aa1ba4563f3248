"""GPUs: drivers, slices and their records, static layouts."""
