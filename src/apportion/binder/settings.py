"""The settings of the binder plane."""

from __future__ import annotations

from dataclasses import dataclass, field

from apportion.apis.installation import Installation


@dataclass(frozen=True)
class Settings:
    """How the plane runs. Times in seconds."""

    probes: str = "127.0.0.1:9404"
    installation: Installation = field(default_factory=Installation)
    identity: str = ""
    lease_name: str = Installation.binder_lease
    lease_duration: float = 15.0
    lease_renew_deadline: float = 10.0
    lease_retry: float = 2.0
