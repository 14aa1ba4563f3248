"""Claims besides those that are being written: of pods that are gone, that lost them, or that have no place."""
