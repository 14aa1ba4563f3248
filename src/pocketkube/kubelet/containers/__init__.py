"""One container: its image, environment, devices, probes, logs, start and restart."""
