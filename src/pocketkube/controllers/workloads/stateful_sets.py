"""StatefulSets: pods with numbers, made and removed in order, each with its own claims."""

from __future__ import annotations

import copy
from typing import Any

from apportion.apis.kinds import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from apportion.cluster import errors
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, deleting
from pocketkube.controllers.workloads import pod_adoption, pod_templates
from pocketkube.controllers.workloads.pod_sets import MOST_PER_SYNC, PodSet
from pocketkube.controllers.workloads.revisions import HASH_LABEL, Revisions

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
REVISION_LABEL = "controller.kubernetes.io/hash"
INDEX_LABEL = "apps.kubernetes.io/pod-index"


class StatefulSets(Reconciler):
    name = "statefulsets"
    component = "statefulset-controller"

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self._pods = PodSet(control, STATEFUL_SETS, self.recorder, tell=_told)
        self._revisions = Revisions(control.client, control.informers, STATEFUL_SETS, label=REVISION_LABEL)

    def subscribe(self) -> None:
        self.follow(STATEFUL_SETS)
        self.follow_owned(PODS, "StatefulSet")
        self.follow_orphans(PODS, STATEFUL_SETS)
        self.informers.of(PERSISTENT_VOLUME_CLAIMS)

    async def reconcile(self, key: Key) -> float | None:
        owner = self.informers.of(STATEFUL_SETS).get(key[1], key[0])
        if owner is None:
            return None
        waiting = self._pods.expectations.wait(key)
        if waiting is not None:
            return waiting
        selector = pod_facts.selector(owner["spec"].get("selector"))
        claimed = await pod_adoption.claimed(self.client, self.informers.of(PODS), STATEFUL_SETS, owner, selector)
        if deleting(owner):
            return None
        mine = {index: pod for pod in claimed if (index := ordinal(owner, pod)) is not None}
        digest = await self._revisions.current(owner)
        again = await self._step(key, owner, mine, digest)
        await self._report(owner, mine, digest)
        await self._revisions.forget(owner, {pod_facts.labels(pod).get(HASH_LABEL, "") for pod in claimed} | {digest})
        later = self._pods.expectations.wait(key)
        return later if later is not None else again

    async def _step(self, key: Key, owner: Json, mine: dict[int, Json], digest: str) -> float | None:
        """Everything that may happen now; in order means: nothing after a pod that is not ready."""
        ordered = owner["spec"].get("podManagementPolicy") != "Parallel"
        wanted = _wanted(owner)
        created = 0
        for index in wanted:
            pod = mine.get(index)
            if pod is None:
                await self._create(key, owner, index, self._revision_for(owner, index, digest))
                created += 1
                if ordered or created == MOST_PER_SYNC:
                    return None
            elif pod_facts.terminal(pod) and not deleting(pod):
                await self._pods.delete(key, owner, [pod])
                return None
            elif ordered and (deleting(pod) or not pod_facts.ready(pod)):
                await self._replace_broken(key, owner, pod, index, digest)
                return None
            elif ordered and (wait := self._not_available(owner, pod)):
                return wait
        surplus = sorted((index for index in mine if index not in wanted), reverse=True)
        for index in surplus:
            if not deleting(mine[index]):
                await self._pods.delete(key, owner, [mine[index]])
            if ordered:
                return None
        return await self._update(key, owner, mine, digest)

    async def _update(self, key: Key, owner: Json, mine: dict[int, Json], digest: str) -> float | None:
        """Replace pods of older templates from the highest number down, one after the other."""
        strategy = owner["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return None
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        for index in reversed(_wanted(owner)):
            pod = mine.get(index)
            if pod is None or deleting(pod):
                return None
            if index >= partition and pod_facts.labels(pod).get(HASH_LABEL) != digest:
                await self._pods.delete(key, owner, [pod])
                return None
            if not pod_facts.ready(pod):
                return None
        return None

    async def _replace_broken(self, key: Key, owner: Json, pod: Json, index: int, digest: str) -> None:
        """A pod of an older template that never gets ready must not hold up its own repair."""
        outdated = pod_facts.labels(pod).get(HASH_LABEL) != self._revision_for(owner, index, digest)
        rolling = (owner["spec"].get("updateStrategy") or {}).get("type") != "OnDelete"
        if outdated and rolling and not deleting(pod):
            await self._pods.delete(key, owner, [pod])

    def _not_available(self, owner: Json, pod: Json) -> float | None:
        wait = pod_facts.available_in(pod, owner["spec"].get("minReadySeconds", 0), self.clock.now())
        return wait or None

    def _revision_for(self, owner: Json, index: int, digest: str) -> str:
        """Below the partition of an update pods stay at the template they have."""
        partition = ((owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition", 0)
        current = (owner.get("status") or {}).get("currentRevision", "").rpartition("-")[2]
        return current if current and index < partition else digest

    async def _create(self, key: Key, owner: Json, index: int, digest: str) -> None:
        template = self._revisions.template(owner, digest) or owner["spec"]["template"]
        name = f"{owner['metadata']['name']}-{index}"
        labels = {POD_NAME_LABEL: name, INDEX_LABEL: str(index), HASH_LABEL: digest}
        pod = pod_templates.pod_from(template, STATEFUL_SETS, owner, name=name, labels=labels)
        pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
        pod["spec"]["hostname"] = name
        if owner["spec"].get("serviceName"):
            pod["spec"]["subdomain"] = owner["spec"]["serviceName"]
        await self._claim_volumes(owner, pod, name)
        try:
            await self._pods.create(key, owner, [pod])
        except errors.AlreadyExists:  # the one before is still going
            return

    async def _claim_volumes(self, owner: Json, pod: Json, name: str) -> None:
        volumes = {each["name"]: each for each in pod["spec"].get("volumes") or ()}
        for template in owner["spec"].get("volumeClaimTemplates") or ():
            claim = f"{template['metadata']['name']}-{name}"
            namespace = owner["metadata"]["namespace"]
            volume = {"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}}
            volumes.pop(volume["name"], None)
            volumes[volume["name"]] = volume
            if self.informers.of(PERSISTENT_VOLUME_CLAIMS).get(claim, namespace) is None:
                labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
                meta = {"name": claim, "namespace": namespace, "labels": labels}
                body = {"metadata": meta, "spec": copy.deepcopy(template["spec"])}
                try:
                    await self.client.create(PERSISTENT_VOLUME_CLAIMS, body)
                except errors.AlreadyExists:
                    continue
                text = f"create Claim {claim} Pod {name} in StatefulSet {owner['metadata']['name']} success"
                self.say(STATEFUL_SETS, owner, "SuccessfulCreate", text)
        pod["spec"]["volumes"] = list(volumes.values())

    async def _report(self, owner: Json, mine: dict[int, Json], digest: str) -> None:
        before = owner.get("status") or {}
        name = owner["metadata"]["name"]
        update = f"{name}-{digest}"
        living = [pod for pod in mine.values() if not pod_facts.terminal(pod)]
        updated = [pod for pod in living if pod_facts.labels(pod).get(HASH_LABEL) == digest]
        current = before.get("currentRevision") or update
        wanted = owner["spec"].get("replicas", 1)
        if len(updated) == wanted == len(living) and all(pod_facts.ready(pod) for pod in updated):
            current = update
        at_current = [pod for pod in living if f"{name}-{pod_facts.labels(pod).get(HASH_LABEL)}" == current]
        least = owner["spec"].get("minReadySeconds", 0)
        status: dict[str, Any] = {
            "observedGeneration": owner["metadata"].get("generation", 1),
            "replicas": len(living),
            "readyReplicas": sum(pod_facts.ready(pod) for pod in living) or None,
            "availableReplicas": sum(pod_facts.available_in(p, least, self.clock.now()) == 0.0 for p in living),
            "currentReplicas": len(at_current) or None,
            "updatedReplicas": len(updated) or None,
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": before.get("collisionCount", 0),
        }
        await self.set_status(STATEFUL_SETS, owner, status)


def _told(owner: Json, pod: Json, deed: str) -> str:
    return f"{deed} Pod {pod['metadata']['name']} in StatefulSet {owner['metadata']['name']} successful"


def ordinal(owner: Json, pod: Json) -> int | None:
    prefix, _, number = pod["metadata"]["name"].rpartition("-")
    return int(number) if prefix == owner["metadata"]["name"] and number.isdigit() else None


def _wanted(owner: Json) -> range:
    start = (owner["spec"].get("ordinals") or {}).get("start", 0)
    return range(start, start + owner["spec"].get("replicas", 1))
