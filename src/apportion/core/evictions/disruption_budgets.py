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

    @property
    def exist(self) -> bool:
        """False only if no pod is under any."""

    def of(self, uid: PodUID, /) -> tuple[str, ...]:
        """Those that protect a pod. Under more than one, it can never be evicted through the API."""

    def allowed(self, key: str, /) -> int:
        """How many pods under this budget can be evicted now."""


class KnownBudgets(msgspec.Struct, frozen=True):
    """Budgets as they were once."""

    disruptions: Mapping[str, int] = {}
    of_pods: Mapping[PodUID, tuple[str, ...]] = {}

    @property
    def exist(self) -> bool:
        return bool(self.of_pods)

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
    """What budgets still allow while evictions are planned. Planned ones that the cluster does not show yet count.

    Each budget counts as it was when it was first asked about.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._budgets = fleet.budgets
        self.exist = fleet.budgets.exist
        self._of_pods: dict[PodUID, tuple[str, ...]] = {}
        self._left: dict[str, int] = {}
        self.use(uid for uid in fleet.releasing if not fleet.terminating(uid))

    def allow(self, uids: Iterable[PodUID]) -> bool:
        """All of these may go together."""
        if not self.exist:
            return True
        asked: dict[str, int] = {}
        for uid in uids:
            budgets = self._of(uid)
            if len(budgets) > 1:
                return False
            for budget in budgets:
                asked[budget] = asked.get(budget, 0) + 1
        return all(count <= self._left_of(budget) for budget, count in asked.items())

    def use(self, uids: Iterable[PodUID]) -> None:
        for uid in uids if self.exist else ():
            for budget in self._of(uid):
                self._left[budget] = self._left_of(budget) - 1

    def _of(self, uid: PodUID) -> tuple[str, ...]:
        found = self._of_pods.get(uid)
        if found is None:
            found = self._of_pods[uid] = self._budgets.of(uid)
        return found

    def _left_of(self, budget: str) -> int:
        return self._left.setdefault(budget, self._budgets.allowed(budget))
