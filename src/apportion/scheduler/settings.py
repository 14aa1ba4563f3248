"""The settings of the scheduler plane."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.apis import names


@dataclass(frozen=True)
class Settings:
    """How the plane runs. Times in seconds."""

    probes: str = "127.0.0.1:9401"
    namespace: str = names.DAS_NAMESPACE  # of claims, NodeAccelerators and the lease
    policy: str = "fragmentation"
    identity: str = ""
    lease_name: str = names.SCHEDULER_LEASE
    lease_duration: float = 15.0
    lease_renew_deadline: float = 10.0
    lease_retry: float = 2.0
