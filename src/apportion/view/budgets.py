"""PodDisruptionBudgets: which of them protect a pod, and how many evictions each allows.

The Eviction API decides in the end. A pod that it evicts without asking a budget (one that does not run, or is being
deleted) is under no budget here either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NewType

from apportion.apis.disruption_budgets import PodDisruptionBudget
from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.cluster import clock
from apportion.core.cluster_changes import Happened
from apportion.view.change_log import ChangeLog

BudgetKey = NewType("BudgetKey", str)  # namespace/name
REFUSED = BudgetKey("the Eviction API refused")
REFUSED_SECONDS = 10.0  # for which a refusal counts, unless a budget of the namespace changes


class Budgets:
    """Budgets by namespace. `pods` are all known pods."""

    def __init__(
        self, changes: ChangeLog, pods: Mapping[PodUID, Pod], now: Callable[[], float] = clock.elapsed
    ) -> None:
        self._changes = changes
        self._pods = pods
        self._now = now
        self._namespaces: dict[str, dict[BudgetKey, PodDisruptionBudget]] = {}
        self._refused: dict[PodUID, float] = {}  # until when

    @property
    def exist(self) -> bool:
        return bool(self._namespaces or self._refused)

    def of(self, uid: PodUID, /) -> tuple[BudgetKey, ...]:
        """The budgets that protect a pod, sorted. The Eviction API evicts no pod that is under more than one."""
        pod = self._pods.get(uid)
        if pod is None or pod.status.phase != "Running" or pod.metadata.deleting:
            return ()
        if self._refused and self._refused.get(uid, 0.0) > self._now():
            return (REFUSED,)
        here = self._namespaces.get(pod.metadata.namespace)
        if here is None:
            return ()
        return tuple(sorted(key for key, budget in here.items() if _selects(budget, pod)))

    def allowed(self, key: str, /) -> int:
        """How many pods under this budget can be evicted now; 0 until its controller has seen its last change."""
        namespace, _, _ = key.partition("/")
        budget = self._namespaces.get(namespace, {}).get(BudgetKey(key))
        return _allowed(budget) if budget is not None else 0

    def refused(self, uids: Iterable[PodUID]) -> None:
        """The server knows of a budget that is not shown yet, or counts otherwise."""
        now = self._now()
        self._refused = {uid: until for uid, until in self._refused.items() if until > now}
        self._refused |= dict.fromkeys(uids, now + REFUSED_SECONDS)

    def as_of(self, listed: Iterable[PodDisruptionBudget]) -> Budgets:
        """The same pods under these budgets."""
        found = Budgets(ChangeLog(), self._pods, self._now)
        for budget in listed:
            found.changed(None, budget)
        return found

    def excess(self, uids: Iterable[PodUID]) -> list[PodUID]:
        """Those of these pods that cannot be evicted together with the ones before them."""
        left: dict[BudgetKey, int] = {}
        found = []
        for uid in uids:
            keys = self.of(uid)
            for key in keys:
                left[key] = left.get(key, self.allowed(key)) - 1
            if len(keys) > 1 or any(left[key] < 0 for key in keys):
                found.append(uid)
        return found

    def changed(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        subject = new or old
        assert subject is not None
        namespace = subject.metadata.namespace
        key = BudgetKey(f"{namespace}/{subject.metadata.name}")
        here = self._namespaces.setdefault(namespace, {})
        if new is None:
            here.pop(key, None)
            if not here:
                del self._namespaces[namespace]
        else:
            here[key] = new
        for uid in [uid for uid in self._refused if self._is_in(uid, namespace)]:
            del self._refused[uid]
        if old is not None and _allows_more(old, new):
            self._changes.note(Happened.QUEUE_CHANGED)

    def _is_in(self, uid: PodUID, namespace: str) -> bool:
        pod = self._pods.get(uid)
        return pod is None or pod.metadata.namespace == namespace


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    selector = budget.spec.selector
    return selector is not None and selector.matches(pod.metadata.labels)


def _allowed(budget: PodDisruptionBudget) -> int:
    if budget.status.observed_generation < budget.metadata.generation:
        return 0
    return max(0, budget.status.disruptions_allowed)


def _allows_more(old: PodDisruptionBudget, new: PodDisruptionBudget | None) -> bool:
    return new is None or old.spec != new.spec or _allowed(old) < _allowed(new)
