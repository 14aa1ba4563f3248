from __future__ import annotations

from tests.scheduler.conftest import each_cluster, real_api

__all__ = ["each_cluster", "real_api"]
