"""The settings of the scheduler plane."""

from __future__ import annotations

from dataclasses import dataclass, field

from apportion.apis.installation import Installation
from apportion.core.evictions.room import Consolidation
from apportion.view.sharing import handed_over


@dataclass(frozen=True)
class Settings:
    """How the plane runs. Times in seconds."""

    probes: str = "127.0.0.1:9401"
    installation: Installation = field(default_factory=Installation)
    policy: str = "fragmentation"
    consolidation: Consolidation = Consolidation.GPUS
    identity: str = ""
    lease_name: str = Installation.scheduler_lease
    lease_duration: float = 15.0
    lease_renew_deadline: float = 10.0
    lease_retry: float = 2.0
    stale_group_seconds: int = 60
    """How long a group may run without its minimum before it is evicted; -1: for ever."""
    binder_patience: float = handed_over.NO_PROGRESS_SECONDS
    """How long a BindRequest may be without progress before its pod is told."""
