"""Facing the containers: what they get before they start (CDI), whether they run, what is taken back."""
