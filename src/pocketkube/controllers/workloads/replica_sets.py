"""ReplicaSets: so many pods of a template. Pods that have ended do not count and are replaced."""

from __future__ import annotations

from apportion.apis.kinds import PODS, REPLICA_SETS
from apportion.cluster import errors
from pocketkube.clock import stamp
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, deleting, set_condition
from pocketkube.controllers.workloads import pod_adoption, pod_templates
from pocketkube.controllers.workloads.pod_sets import PodSet, least_wanted


class ReplicaSets(Reconciler):
    name = "replicasets"
    component = "replicaset-controller"
    workers = 8

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self._pods = PodSet(control, REPLICA_SETS, self.recorder)

    def subscribe(self) -> None:
        self.follow(REPLICA_SETS)
        self.follow_owned(PODS, "ReplicaSet")
        self.follow_orphans(PODS, REPLICA_SETS)

    async def reconcile(self, key: Key) -> float | None:
        owner = self.informers.of(REPLICA_SETS).get(key[1], key[0])
        if owner is None:
            return None
        waiting = self._pods.expectations.wait(key)
        if waiting is not None:
            return waiting
        selector = pod_facts.selector(owner["spec"].get("selector"))
        mine = await pod_adoption.claimed(self.client, self.informers.of(PODS), REPLICA_SETS, owner, selector)
        active = [pod for pod in mine if pod_facts.active(pod)]
        failure: errors.ApiError | None = None
        if not deleting(owner):
            try:
                await self._scale(key, owner, active)
            except errors.ApiError as error:
                failure = error
        again = await self._report(owner, active, failure)
        if failure is not None:
            raise failure
        return again

    async def _scale(self, key: Key, owner: Json, active: list[Json]) -> None:
        wanted = owner["spec"].get("replicas", 1)
        missing = wanted - len(active)
        if missing > 0:
            template = owner["spec"]["template"]
            bodies = (pod_templates.pod_from(template, REPLICA_SETS, owner) for _ in range(missing))
            await self._pods.create(key, owner, bodies)
        elif missing < 0:
            await self._pods.delete(key, owner, least_wanted(active)[:-missing])

    async def _report(self, owner: Json, active: list[Json], failure: errors.ApiError | None) -> float | None:
        spec, before = owner["spec"], owner.get("status") or {}
        waits = [pod_facts.available_in(pod, spec.get("minReadySeconds", 0), self.clock.now()) for pod in active]
        template = (spec["template"].get("metadata") or {}).get("labels") or {}
        labelled = [pod for pod in active if template.items() <= pod_facts.labels(pod).items()]
        conditions = before.get("conditions") or []
        if failure is not None:
            now = stamp(self.clock.now())
            conditions = set_condition(conditions, "ReplicaFailure", "True", "FailedCreate", str(failure), now)
        else:
            conditions = [each for each in conditions if each["type"] != "ReplicaFailure"]
        status = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(labelled) or None,
            "readyReplicas": sum(pod_facts.ready(pod) for pod in active) or None,
            "availableReplicas": sum(wait == 0.0 for wait in waits) or None,
            "observedGeneration": owner["metadata"].get("generation", 1),
            "conditions": conditions or None,
        }
        await self.set_status(REPLICA_SETS, owner, status)
        return min((wait for wait in waits if wait), default=None)
