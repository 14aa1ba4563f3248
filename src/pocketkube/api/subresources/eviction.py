"""Eviction: a deletion that asks the pod's disruption budget first."""

from __future__ import annotations

from typing import Any

from pocketkube.api import status
from pocketkube.api.registry import Registry, Resource
from pocketkube.api.storage import metadata, selectors
from pocketkube.api.storage.deletion import Deleter
from pocketkube.api.storage.store import Bucket, Store, Stored
from pocketkube.api.storage.writer import Options, Target, Update, Writer

Obj = dict[str, Any]
PODS, BUDGETS = Bucket("", "pods"), Bucket("policy", "poddisruptionbudgets")
MAX_DISRUPTED = 2000
_TOO_MANY_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


class Evictions:
    def __init__(
        self, store: Store, registry: Registry, writer: Writer, deleter: Deleter, clock: metadata.Clock
    ) -> None:
        self._store = store
        self._registry = registry
        self._writer = writer
        self._deleter = deleter
        self._clock = clock

    async def evict(self, target: Target, body: Obj, options: Options) -> Obj:
        """Delete the pod if its budget allows; answers a Status, or raises 429."""
        name = (body.get("metadata") or {}).get("name")
        if name and name != target.name:
            raise status.bad_request("name in URL does not match name in Eviction object")
        how = dict(body.get("deleteOptions") or {})
        stored = self._store.get(PODS, target.namespace, target.name)
        if stored is None:
            raise status.not_found(target.resource, target.name)
        pod = stored.decode()
        options.dry_run = options.dry_run or how.get("dryRun") == ["All"]
        budget = None if _needs_no_budget(pod) else self._budget(stored)
        if budget is not None and not _unhealthy_may_go(pod, budget.decode()):
            await self._spend(budget, target, options)
        plain = Target(target.resource, target.namespace, target.name)
        if not pod["metadata"].get("deletionTimestamp"):
            await self._mark(plain, options)
        how.setdefault("preconditions", {}).setdefault("uid", stored.uid)
        await self._deleter.delete(plain, how, options, admitted=True)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _budget(self, pod: Stored) -> Stored | None:
        matching = []
        for stored in self._store.items(BUDGETS, pod.key.namespace):
            selector = (stored.decode().get("spec") or {}).get("selector")
            if selectors.from_label_selector(selector)(pod.labels):
                matching.append(stored)
        if len(matching) > 1:
            raise status.ApiStatus(500, "InternalError", _TOO_MANY_BUDGETS, {})
        return matching[0] if matching else None

    async def _spend(self, budget: Stored, target: Target, options: Options) -> None:
        now = metadata.timestamp(self._clock())

        def change(obj: Obj) -> Obj:
            state = obj.setdefault("status", {})
            _check_budget(obj)
            state["disruptionsAllowed"] = int(state.get("disruptionsAllowed") or 0) - 1
            state.setdefault("disruptedPods", {})[target.name] = now
            return obj

        where = Target(self._resource(BUDGETS), budget.key.namespace, budget.key.name, "status")
        await self._writer.update(where, Update(change, internal=True), options)

    async def _mark(self, target: Target, options: Options) -> None:
        now = metadata.timestamp(self._clock())
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }

        def change(pod: Obj) -> Obj:
            conditions = pod.setdefault("status", {}).setdefault("conditions", [])
            conditions[:] = [each for each in conditions if each.get("type") != "DisruptionTarget"] + [condition]
            return pod

        await self._writer.update(
            Target(target.resource, target.namespace, target.name, "status"), Update(change, internal=True), options
        )

    def _resource(self, bucket: Bucket) -> Resource:
        resource = self._registry.find(bucket.group, "v1", bucket.plural)
        assert resource is not None
        return resource


def _needs_no_budget(pod: Obj) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _unhealthy_may_go(pod: Obj, budget: Obj) -> bool:
    """A pod that is not ready helps nobody: it may go unless the budget is already short of healthy ones."""
    ready = any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in (pod.get("status") or {}).get("conditions") or []
    )
    if ready:
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    state = budget.get("status") or {}
    desired = state.get("desiredHealthy") or 0
    return desired > 0 and (state.get("currentHealthy") or 0) >= desired


def _check_budget(budget: Obj) -> None:
    state, name = budget.get("status") or {}, budget["metadata"]["name"]
    if (state.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
        raise _refusal(f"The disruption budget {name} is still being processed by the server.", retry_after=10)
    allowed = state.get("disruptionsAllowed") or 0
    if allowed < 0:
        raise status.forbidden(_BUDGET, name, "pdb disruptions allowed is negative")
    if len(state.get("disruptedPods") or {}) > MAX_DISRUPTED:
        raise status.forbidden(
            _BUDGET, name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        )
    if allowed == 0:
        desired, healthy = state.get("desiredHealthy") or 0, state.get("currentHealthy") or 0
        raise _refusal(f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")


def _refusal(cause: str, retry_after: int = 0) -> status.ApiStatus:
    details: Obj = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return status.too_many_requests(_REFUSED, details, retry_after)


class _Budget:
    group, plural, kind = "policy", "poddisruptionbudgets", "PodDisruptionBudget"


_BUDGET = _Budget()
