"""The fair shares that hold now, worked out again when demand, queues or nodes have changed."""

from __future__ import annotations

from collections.abc import Iterable

from apportion.apis.identities import QueueName
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.queues import shares, totals
from apportion.core.queues.amounts import NOTHING, Amounts
from apportion.core.queues.demand import Demand
from apportion.core.queues.shares import Shares
from apportion.core.queues.tree import QueueTree
from apportion.core.queues.turns import Turn, Turns


class Entitlements:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.demand = Demand(fleet)
        self.shares: Shares = {}
        self.total: Amounts = NOTHING
        self._known: tuple[QueueTree, Amounts, dict[QueueName, Amounts]] | None = None

    def update(self) -> Shares:
        tree, total, asked = self._fleet.accounts.tree, totals.total(self._fleet), self.demand.of_queues()
        if self._known is None or self._known[0] is not tree or self._known[1:] != (total, asked):
            self._known = (tree, total, asked)
            self.total = total
            self.shares = shares.compute(tree, total, asked)
        return self.shares

    def turns(self, turns: Iterable[Turn[Group]]) -> Turns[Group]:
        """An order for these that follows what is placed."""
        self.update()
        return Turns(self._fleet.accounts, self.shares, self.total, turns)
