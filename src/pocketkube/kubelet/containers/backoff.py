"""How long a container that crashed, or a start that failed, must wait: doubling up to a limit, reset after a stable
run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BackOffSettings:
    """Seconds. A kubelet's own values; tests and demos take smaller ones."""

    initial: float = 10.0
    maximum: float = 300.0
    forget_after: float = 600.0  # a run that lasted this long starts the count anew


@dataclass
class BackOff:
    """The back-off of one container."""

    settings: BackOffSettings
    waited: float = 0.0  # what the last answer made the container wait
    _next: float = 0.0
    _until: float = 0.0

    def after_exit(self, finished_at: float, now: float) -> float:
        """The moment of the next start. The first restart comes at once, as a kubelet does it."""
        if now - self._until > self.settings.forget_after:
            self._next = 0.0
        self.waited = self._next
        self._next = min(self._next * 2, self.settings.maximum) if self._next else self.settings.initial
        self._until = max(finished_at + self.waited, now)
        return finished_at + self.waited
