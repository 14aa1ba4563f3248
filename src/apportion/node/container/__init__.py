"""Containers: what they get before they start (CDI), whether they run, and the release of their slices."""
