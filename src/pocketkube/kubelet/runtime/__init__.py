"""Running containers: as child processes (images named for it) or simulated (any other)."""
