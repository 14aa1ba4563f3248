"""Disruption budgets are read once more right before several pods are evicted.

If one of them is protected by now, the others would be evicted for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from apportion.apis.disruption_budgets import PodDisruptionBudget
from apportion.apis.kinds import POD_DISRUPTION_BUDGETS
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.core.operations import Evict
from apportion.scheduler.writers import EvictionRefused
from apportion.view.budgets import Budgets

MOST_LISTS = 4  # namespaces that are listed one by one


class BudgetCheck:
    """`budgets` are those of the view."""

    def __init__(self, client: Client, budgets: Budgets) -> None:
        self._client, self._budgets = client, budgets

    async def __call__(self, evictions: Sequence[Evict]) -> None:
        """Raises EvictionRefused if they are not all possible together."""
        listed = await self._listed({each.request.namespace for each in evictions})
        refused = self._budgets.as_of(listed).excess(each.request.uid for each in evictions)
        if refused:
            named = next(each.request.key for each in evictions if each.request.uid == refused[0])
            raise EvictionRefused(f"a disruption budget protects pod {named}", refused)

    async def _listed(self, namespaces: set[str]) -> list[PodDisruptionBudget]:
        found: list[PodDisruptionBudget] = []
        for namespace in sorted(namespaces) if len(namespaces) <= MOST_LISTS else [None]:
            with suppress(errors.Forbidden):  # who may not read them is told by the Eviction API
                listing = await self._client.list(POD_DISRUPTION_BUDGETS, namespace=namespace, into=PodDisruptionBudget)
                found += listing.items
        return found
