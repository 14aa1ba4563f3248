"""A small shell: what simulated containers run instead of their image's programs."""
