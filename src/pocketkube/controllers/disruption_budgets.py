"""PodDisruptionBudgets: how many pods may go now."""

from __future__ import annotations

import math

from apportion.apis.kinds import POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS
from pocketkube.clock import seconds_of, stamp
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Json, Key, Reconciler, controller_of, deleting, key_of, set_condition
from pocketkube.informers import BY_NAMESPACE

_DISRUPTION_SECONDS = 120.0


class DisruptionBudgets(Reconciler):
    name = "disruption"
    component = "controllermanager"

    def subscribe(self) -> None:
        self.follow(POD_DISRUPTION_BUDGETS)
        for kind in (REPLICA_SETS, STATEFUL_SETS):
            self.informers.of(kind).on_change(self._look)
        self.informers.of(PODS).on_change(self._look)

    def _look(self, old: Json | None, new: Json | None) -> None:
        obj = new or old
        assert obj is not None
        for budget in self.informers.of(POD_DISRUPTION_BUDGETS).indexed(BY_NAMESPACE, obj["metadata"]["namespace"]):
            self.queue.add(key_of(budget))

    async def reconcile(self, key: Key) -> float | None:
        budget = self.informers.of(POD_DISRUPTION_BUDGETS).get(key[1], key[0])
        if budget is None or deleting(budget):
            return None
        spec, before, now = budget["spec"], budget.get("status") or {}, self.clock.now()
        chosen = self._pods(spec, key[0])
        expected = self._expected(spec, chosen)
        wanted = _wanted(spec, expected)
        disrupted = _still_disrupted(before.get("disruptedPods") or {}, chosen, now)
        healthy = sum(pod_facts.ready(p) and not deleting(p) and p["metadata"]["name"] not in disrupted for p in chosen)
        allowed = max(0, healthy - wanted) if expected else 0
        reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
        conditions = set_condition(
            before.get("conditions") or (),
            "DisruptionAllowed",
            *reason,
            "",
            stamp(now),
            observedGeneration=budget["metadata"].get("generation", 1),
        )
        status = {
            "currentHealthy": healthy,
            "desiredHealthy": wanted,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": budget["metadata"].get("generation", 1),
            "disruptedPods": disrupted or None,
            "conditions": conditions,
        }
        await self.set_status(POD_DISRUPTION_BUDGETS, budget, status)
        return _DISRUPTION_SECONDS if disrupted else None

    def _pods(self, spec: Json, namespace: str) -> list[Json]:
        selector = pod_facts.selector(spec.get("selector"))
        there = self.informers.of(PODS).indexed(BY_NAMESPACE, namespace)
        return [pod for pod in there if not pod_facts.terminal(pod) and selector.matches(pod_facts.labels(pod))]

    def _expected(self, spec: Json, chosen: list[Json]) -> int:
        """A share is of what the owners want, not of what happens to be there."""
        if isinstance(spec.get("minAvailable"), int):
            return len(chosen)
        owners: dict[str, int] = {}
        free = 0
        for pod in chosen:
            reference = controller_of(pod)
            kind = {"ReplicaSet": REPLICA_SETS, "StatefulSet": STATEFUL_SETS}.get((reference or {}).get("kind", ""))
            owner = None
            if reference is not None and kind is not None:
                owner = self.informers.of(kind).get(reference["name"], pod["metadata"]["namespace"])
            if owner is None:
                free += 1
            else:
                owners[owner["metadata"]["uid"]] = int(owner["spec"].get("replicas", 1))
        return sum(owners.values()) + free


def _wanted(spec: Json, expected: int) -> int:
    if "minAvailable" in spec:
        return _amount(spec["minAvailable"], expected)
    return max(0, expected - _amount(spec.get("maxUnavailable", 0), expected))


def _amount(value: str | int, total: int) -> int:
    return value if isinstance(value, int) else math.ceil(int(value.rstrip("%") or 0) * total / 100)


def _still_disrupted(disrupted: dict[str, str], chosen: list[Json], now: float) -> dict[str, str]:
    """Evictions that were granted and whose pods have not gone yet."""
    there = {pod["metadata"]["name"] for pod in chosen if not deleting(pod)}
    return {
        name: since
        for name, since in disrupted.items()
        if name in there and seconds_of(since) + _DISRUPTION_SECONDS > now
    }
