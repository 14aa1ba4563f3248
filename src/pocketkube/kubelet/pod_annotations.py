"""Annotations of pods that say how long the work of an image takes that is not really run, and how it ends."""

from __future__ import annotations

SIMULATED_SECONDS = "apportion.io/simulated-seconds"
SIMULATED_EXIT_CODE = "apportion.io/simulated-exit-code"
