"""PodDisruptionBudgets: how many pods may be evicted now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from apportion.apis.identities import PodUID

if TYPE_CHECKING:
    from apportion.core.fleet import Fleet


class Budgets(Protocol):
    """Budgets by namespace and name."""

    def of(self, uid: PodUID, /) -> tuple[str, ...]:
        """Those that protect a pod. Under more than one, it can never be evicted through the API."""

    def allowed(self, key: str, /) -> int:
        """How many pods under this budget can be evicted now."""


class KnownBudgets(msgspec.Struct, frozen=True):
    """Budgets as they were once."""

    disruptions: Mapping[str, int] = {}
    of_pods: Mapping[PodUID, tuple[str, ...]] = {}

    def of(self, uid: PodUID, /) -> tuple[str, ...]:
        return self.of_pods.get(uid, ())

    def allowed(self, key: str, /) -> int:
        return self.disruptions.get(key, 0)


NO_BUDGETS = KnownBudgets()


def as_known(budgets: Budgets, uids: Iterable[PodUID]) -> KnownBudgets:
    """What they say now about these pods."""
    of_pods = {uid: keys for uid in sorted(uids) if (keys := budgets.of(uid))}
    known = sorted({key for keys in of_pods.values() for key in keys})
    return KnownBudgets({key: budgets.allowed(key) for key in known}, of_pods)


class Allowances:
    """What budgets still allow while evictions are planned. Planned ones that the cluster does not show yet count."""

    def __init__(self, fleet: Fleet) -> None:
        self._known = as_known(fleet.budgets, fleet.pod_nodes)
        self._left = dict(self._known.disruptions)
        if self._left:
            self.use(uid for uid in fleet.releasing if not fleet.terminating(uid))

    @property
    def exist(self) -> bool:
        return bool(self._left)

    def allow(self, uids: Iterable[PodUID]) -> bool:
        """All of these may go together."""
        if not self._left:
            return True
        asked: dict[str, int] = {}
        for uid in uids:
            budgets = self._known.of(uid)
            if len(budgets) > 1:
                return False
            for budget in budgets:
                asked[budget] = asked.get(budget, 0) + 1
        return all(count <= self._left[budget] for budget, count in asked.items())

    def use(self, uids: Iterable[PodUID]) -> None:
        for uid in uids if self._left else ():
            for budget in self._known.of(uid):
                self._left[budget] -= 1
