from __future__ import annotations

from tests.binder.conftest import each_cluster, shared

__all__ = ["each_cluster", "shared"]
