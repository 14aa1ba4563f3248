"""Which device ids there are, which of them are healthy, and which container holds which: pure.

As in a real kubelet, what a gone pod held is freed when somebody asks next, not when the pod goes; and an
ordinary init container hands its devices on to later containers of its pod.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field


class AllocationError(Exception):
    """Devices that cannot be given; the text is a kubelet's."""


@dataclass(frozen=True)
class Held:
    """What one container holds of one resource, with the plugin's answer to Allocate, encoded."""

    ids: frozenset[str]
    response: bytes = b""


Containers = dict[str, dict[str, Held]]  # container -> resource -> what it holds


@dataclass
class Ledger:
    """Devices of one node."""

    rng: random.Random = field(default_factory=random.Random)
    _healthy: dict[str, set[str]] = field(default_factory=dict)
    _unhealthy: dict[str, set[str]] = field(default_factory=dict)
    _held: dict[str, Containers] = field(default_factory=dict)  # by pod uid
    _reusable: dict[str, dict[str, set[str]]] = field(default_factory=dict)  # by pod uid and resource

    # Devices

    def set_devices(self, resource: str, devices: Mapping[str, bool]) -> None:
        """Replace the list of a resource; the value says whether a device is healthy."""
        self._healthy[resource] = {name for name, healthy in devices.items() if healthy}
        self._unhealthy[resource] = {name for name, healthy in devices.items() if not healthy}

    def mark_unhealthy(self, resource: str) -> None:
        """The plugin went away: nothing of it can be given until it is back."""
        self._unhealthy[resource] = self._unhealthy.get(resource, set()) | self._healthy.get(resource, set())
        self._healthy[resource] = set()

    def forget(self, resource: str) -> None:
        """The plugin stayed away for too long."""
        self._healthy.pop(resource, None)
        self._unhealthy.pop(resource, None)

    def knows(self, resource: str) -> bool:
        return resource in self._healthy or any(
            resource in resources for containers in self._held.values() for resources in containers.values()
        )

    def totals(self) -> dict[str, tuple[int, int]]:
        """Capacity and allocatable per resource: capacity counts unhealthy devices too."""
        return {
            resource: (len(healthy) + len(self._unhealthy.get(resource, ())), len(healthy))
            for resource, healthy in self._healthy.items()
        }

    def healthy(self) -> dict[str, list[str]]:
        return {resource: sorted(ids) for resource, ids in self._healthy.items()}

    # Who holds what

    def held(self, uid: str, container: str) -> dict[str, Held]:
        return dict(self._held.get(uid, {}).get(container, {}))

    def entries(self) -> Iterable[tuple[str, str, str, Held]]:
        for uid, containers in self._held.items():
            for container, resources in containers.items():
                for resource, held in resources.items():
                    yield uid, container, resource, held

    def keep_only(self, active: Collection[str]) -> None:
        """Free what pods hold that are gone or have ended."""
        for uid in [uid for uid in self._held if uid not in active]:
            del self._held[uid]
            self._reusable.pop(uid, None)

    def restore(self, uid: str, container: str, resource: str, held: Held) -> None:
        self._held.setdefault(uid, {}).setdefault(container, {})[resource] = held

    def choose(self, uid: str, container: str, resource: str, count: int) -> frozenset[str]:
        """Ids for a container; empty if it has what it needs already. Nothing is recorded yet."""
        before = self.held(uid, container).get(resource)
        if before is not None:
            self._check_still_there(resource, before, count)
            return frozenset()
        if resource not in self._healthy:
            raise AllocationError(f"cannot allocate unregistered device {resource}")
        healthy = self._healthy[resource]
        if not healthy:
            raise AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        handed_on = sorted(self._reusable.get(uid, {}).get(resource, set()) & healthy)[:count]
        missing = count - len(handed_on)
        free = sorted(healthy - self._in_use(resource))
        if len(free) < missing:
            raise AllocationError(
                f"requested number of devices unavailable for {resource}. Requested: {missing}, Available: {len(free)}"
            )
        return frozenset(handed_on) | frozenset(self.rng.sample(free, missing))

    def available(self, uid: str, resource: str) -> tuple[list[str], list[str]]:
        """What `choose` can take from, and what it must take: for a plugin that has a preference."""
        healthy = self._healthy.get(resource, set())
        must = self._reusable.get(uid, {}).get(resource, set()) & healthy
        return sorted((healthy - self._in_use(resource)) | must), sorted(must)

    def record(self, uid: str, container: str, resource: str, held: Held) -> None:
        self.restore(uid, container, resource, held)

    def hand_on(self, uid: str, container: str) -> None:
        """An ordinary init container: later containers of the pod may have its devices."""
        pool = self._reusable.setdefault(uid, {})
        for resource, held in self.held(uid, container).items():
            pool.setdefault(resource, set()).update(held.ids)

    def keep(self, uid: str, container: str) -> None:
        """A container that runs on: its devices are no longer handed on."""
        pool = self._reusable.get(uid, {})
        for resource, held in self.held(uid, container).items():
            pool.get(resource, set()).difference_update(held.ids)

    def _in_use(self, resource: str) -> set[str]:
        return {name for _, _, other, held in self.entries() if other == resource for name in held.ids}

    def _check_still_there(self, resource: str, before: Held, count: int) -> None:
        """A pod that is admitted again after a restart of the kubelet must find its devices healthy."""
        if len(before.ids) != count:
            raise AllocationError(
                f"pod wants {count} {resource}, but holds {len(before.ids)}: a device request cannot be changed"
            )
        if resource not in self._healthy:
            raise AllocationError(f"cannot allocate unregistered device {resource}")
        healthy = self._healthy[resource]
        if not healthy:
            raise AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not before.ids <= healthy:
            raise AllocationError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
