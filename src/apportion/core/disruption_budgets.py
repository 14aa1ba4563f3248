"""PodDisruptionBudgets: how many pods may be evicted now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from apportion.apis.identities import PodUID

if TYPE_CHECKING:
    from apportion.core.fleet import Fleet


class Budgets(msgspec.Struct, frozen=True):
    """Budgets by namespace and name. A pod under more than one budget can never be evicted through the API."""

    allowed: Mapping[str, int] = {}  # disruptions that each budget allows now
    of_pods: Mapping[PodUID, tuple[str, ...]] = {}

    def of(self, uid: PodUID) -> tuple[str, ...]:
        return self.of_pods.get(uid, ())

    def protects(self, uid: PodUID) -> bool:
        """For ever, whatever the budgets allow."""
        return len(self.of(uid)) > 1


NO_BUDGETS = Budgets()


class Allowances:
    """What budgets still allow while evictions are planned. Planned ones that the cluster does not show yet count."""

    def __init__(self, fleet: Fleet) -> None:
        self._budgets = fleet.budgets
        self._left = dict(fleet.budgets.allowed)
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
            budgets = self._budgets.of(uid)
            if len(budgets) > 1:
                return False
            for budget in budgets:
                asked[budget] = asked.get(budget, 0) + 1
        return all(count <= self._left.get(budget, 0) for budget, count in asked.items())

    def use(self, uids: Iterable[PodUID]) -> None:
        for uid in uids if self._left else ():
            for budget in self._budgets.of(uid):
                self._left[budget] = self._left.get(budget, 0) - 1
