"""The grounds of the scheduler's tests, here too."""

from __future__ import annotations

from tests.scheduler.conftest import any_ground, ground, real_api

__all__ = ["any_ground", "ground", "real_api"]
