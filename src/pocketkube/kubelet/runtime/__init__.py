"""Running containers: as child processes (our image) or simulated (any other)."""
