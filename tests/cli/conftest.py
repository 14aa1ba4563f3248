"""The clusters of the scheduler's tests, here too."""

from __future__ import annotations

from tests.scheduler.conftest import cluster, each_cluster
from tests.scheduler.sharing.test_shares import sharing

__all__ = ["cluster", "each_cluster", "sharing"]
