"""How an embedded kubelet behaves; the defaults are a real kubelet's unless a comment says otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field

from pocketkube.kubelet.containers.backoff import BackOffSettings


@dataclass(frozen=True)
class KubeletSettings:
    """Times in seconds."""

    restart: BackOffSettings = field(default_factory=BackOffSettings)
    # A start that failed is tried again after 10 s by a real kubelet; ours begins sooner and ends there.
    retry: BackOffSettings = field(
        default_factory=lambda: BackOffSettings(initial=0.5, maximum=10.0, forget_after=60.0)
    )
    heartbeat: float = 10.0
    status_report: float = 300.0
    token_renewal: float = 2400.0  # service-account tokens live for an hour; renewed at two thirds of it
