"""The profiles that the cluster offers, as far as admission needs them.

Static devices are node capacity (`nvidia.com/mig-P`); dynamic slices are created on the GPUs that NodeAccelerators
report. The shipped catalog contains more models than a cluster has; their nodes may be added later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from apportion.apis import profiles
from apportion.apis.errors import ProfileError

_LISTED = 40


@dataclass(frozen=True)
class Offers:
    """The profiles that nodes have as static devices, that agents can create, and that some GPU model has."""

    static: frozenset[str] = frozenset()
    dynamic: frozenset[str] = frozenset()
    catalogued: frozenset[str] = frozenset()

    @property
    def here(self) -> frozenset[str]:
        return self.static | self.dynamic

    def has(self, profile: str) -> bool:
        return profile in self.static or profile in self.dynamic or profile in self.catalogued

    def require(self, profile: str, *, field: str) -> None:
        """Reject a profile that no model has (S03, D04)."""
        if not self.has(profile):
            raise ProfileError(field, profile, f"no GPU model has this MIG profile; {self._existing()}")

    def _existing(self) -> str:
        if self.here:
            return f"profiles of this cluster: {_listed(self.here)}"
        return f"known profiles: {_listed(self.catalogued)}"


def _listed(names: Iterable[str]) -> str:
    """Small profiles first."""
    ordered = sorted(names, key=_by_size)
    shown = ", ".join(ordered[:_LISTED])
    return f"{shown} and {len(ordered) - _LISTED} more" if len(ordered) > _LISTED else shown


def _by_size(profile: str) -> tuple[int, int, str]:
    if not profiles.well_formed(profile):
        return (0, 0, profile)
    return (profiles.memory_gb(profile), profiles.compute(profile), profile)
