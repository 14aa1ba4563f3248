"""Deployments: rollouts over ReplicaSets, with a history that can be undone."""

from __future__ import annotations

import copy
from typing import Any

from apportion.apis.kinds import DEPLOYMENTS, PODS, REPLICA_SETS
from apportion.cluster import errors
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, deleting
from pocketkube.controllers.workloads import deployment_status, pod_templates, rollout_sizes
from pocketkube.controllers.workloads.expectations import Expectations
from pocketkube.informers import BY_OWNER

REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
HISTORY = "deployment.kubernetes.io/revision-history"
_PRIVATE = ("kubectl.kubernetes.io/last-applied-configuration", REVISION, DESIRED, MOST)


class Deployments(Reconciler):
    name = "deployments"
    component = "deployment-controller"

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self._sets = control.informers.of(REPLICA_SETS)
        self._expectations = Expectations(control.clock)

    def subscribe(self) -> None:
        self.follow(DEPLOYMENTS)
        self.follow_owned(REPLICA_SETS, "Deployment")

        def pod_gone(old: Json | None, new: Json | None) -> None:
            """A Recreate rollout waits for the last old pod."""
            if old is None or new is not None:
                return
            for reference in old["metadata"].get("ownerReferences") or ():
                owner = self._sets.get(reference["name"], old["metadata"]["namespace"])
                if owner is not None and reference["kind"] == "ReplicaSet":
                    for parent in owner["metadata"].get("ownerReferences") or ():
                        self.queue.add((old["metadata"]["namespace"], parent["name"]))

        self.informers.of(PODS).on_change(pod_gone)

    async def reconcile(self, key: Key) -> float | None:
        deployment = self.informers.of(DEPLOYMENTS).get(key[1], key[0])
        if deployment is None or deleting(deployment):
            return None
        waiting = self._expectations.wait(key)
        if waiting is not None:
            return waiting
        sets = self._sets.indexed(BY_OWNER, deployment["metadata"]["uid"])
        new = _current(deployment, sets)
        olds = sorted((each for each in sets if each is not new), key=_age)
        if deployment["spec"].get("paused") or _rescaled(deployment, sets):
            await self._scale(key, deployment, new, olds)
        elif deployment["spec"].get("strategy", {}).get("type") == "Recreate":
            new = await self._recreate(key, deployment, new, olds)
        else:
            new = await self._roll(key, deployment, new, olds)
        if new is not None:
            await self._forget_history(key, deployment, new, olds)
        again = await deployment_status.report(self, deployment, new, olds)
        later = self._expectations.wait(key)
        return later if later is not None else again

    async def _scale(self, key: Key, deployment: Json, new: Json | None, olds: list[Json]) -> None:
        """Only the number has changed, or only that may: what is there grows or shrinks, each by its part."""
        wanted = deployment["spec"].get("replicas", 1)
        everything = [*olds, new] if new is not None else olds
        active = [each for each in everything if _size(each)]
        if len(active) < 2:  # noqa: PLR2004
            only = active[0] if active else new or next(reversed(olds), None)
            if only is not None:
                await self._resize(key, deployment, only, wanted)
            return
        if new is not None and _size(new) == _available(new) == wanted == _annotated(new, DESIRED):
            sizes = {each["metadata"]["name"]: 0 for each in active if each is not new}
        else:
            shares = [
                rollout_sizes.Share(each["metadata"]["name"], _size(each), _annotated(each, MOST), _age(each))
                for each in active
            ]
            sizes = rollout_sizes.proportional(wanted, _bounds(deployment), shares)
        for each in active:
            await self._resize(key, deployment, each, sizes.get(each["metadata"]["name"], _size(each)))

    async def _recreate(self, key: Key, deployment: Json, new: Json | None, olds: list[Json]) -> Json | None:
        for old in olds:
            await self._resize(key, deployment, old, 0)
        owners = [old["metadata"]["uid"] for old in olds]
        left = [pod for uid in owners for pod in self.informers.of(PODS).indexed(BY_OWNER, uid)]
        if any(not pod_facts.terminal(pod) for pod in left):
            return new
        return await self._make(key, deployment, new, olds, deployment["spec"].get("replicas", 1))

    async def _roll(self, key: Key, deployment: Json, new: Json | None, olds: list[Json]) -> Json | None:
        wanted = deployment["spec"].get("replicas", 1)
        limit = _bounds(deployment)
        old_total = sum(_size(old) for old in olds)
        target = rollout_sizes.next_size(wanted, limit, _size(new) if new else 0, old_total)
        made = await self._make(key, deployment, new, olds, target)
        if made is None or new is None:
            return made
        facts = [rollout_sizes.Old(old["metadata"]["name"], _size(old), _available(old)) for old in olds if _size(old)]
        sizes = rollout_sizes.shrink(wanted, limit, _size(new), _available(new), facts)
        for old in olds:
            name = old["metadata"]["name"]
            if name in sizes:
                await self._resize(key, deployment, old, sizes[name])
        return made

    async def _make(self, key: Key, deployment: Json, new: Json | None, olds: list[Json], size: int) -> Json | None:
        """The ReplicaSet of the present template at a size, with the next revision."""
        revision = str(max([_revision(old) for old in olds], default=0) + 1)
        if new is not None:
            revision = str(max(int(revision), _revision(new)))
            await self._annotate(key, deployment, new, revision)
            return await self._resize(key, deployment, new, size)
        body = _replica_set(deployment, size, revision)
        try:
            made = await self.client.create(REPLICA_SETS, body)
        except errors.AlreadyExists:
            count = (deployment.get("status") or {}).get("collisionCount", 0) + 1
            await self.set_status(DEPLOYMENTS, deployment, {"collisionCount": count})
            return None
        self._expectations.created(key, self._sets, made)
        name = made["metadata"]["name"]
        self.say(DEPLOYMENTS, deployment, "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {size}")
        await self._set_revision(key, deployment, revision)
        return made

    async def _annotate(self, key: Key, deployment: Json, new: Json, revision: str) -> None:
        wanted = _annotations(deployment, revision)
        if (before := _revision(new)) and str(before) != revision:
            earlier = (new["metadata"].get("annotations") or {}).get(HISTORY)
            wanted[HISTORY] = f"{earlier},{before}" if earlier else str(before)
        if not wanted.items() <= (new["metadata"].get("annotations") or {}).items():
            await self._write_set(key, new, {"metadata": {"annotations": wanted}})
        await self._set_revision(key, deployment, revision)

    async def _set_revision(self, key: Key, deployment: Json, revision: str) -> None:
        meta = deployment["metadata"]
        if (meta.get("annotations") or {}).get(REVISION) == revision:
            return
        patch = {"metadata": {"annotations": {REVISION: revision}}}
        # Through the status endpoint: elsewhere a Deployment's annotations count as a change of its spec.
        written = await self.client.patch(
            DEPLOYMENTS, meta["name"], patch, namespace=meta["namespace"], subresource="status"
        )
        self._expectations.written(key, self.informers.of(DEPLOYMENTS), written)

    async def _resize(self, key: Key, deployment: Json, target: Json, size: int) -> Json:
        before = _size(target)
        counts = _counts(deployment)
        told = counts.items() <= (target["metadata"].get("annotations") or {}).items()
        if before == size and told:
            return target
        written = await self._write_set(key, target, {"metadata": {"annotations": counts}, "spec": {"replicas": size}})
        if before == size:
            return written
        way = "up" if size > before else "down"
        text = f"Scaled {way} replica set {target['metadata']['name']} from {before} to {size}"
        self.say(DEPLOYMENTS, deployment, "ScalingReplicaSet", text)
        return written

    async def _write_set(self, key: Key, target: Json, patch: Json) -> Json:
        meta = target["metadata"]
        written = await self.client.patch(REPLICA_SETS, meta["name"], patch, namespace=meta["namespace"])
        self._expectations.written(key, self._sets, written)
        return written

    async def _forget_history(self, key: Key, deployment: Json, new: Json, olds: list[Json]) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit", 10)
        idle = [each for each in olds if not _size(each) and not (each.get("status") or {}).get("replicas")]
        del new
        for each in sorted(idle, key=_revision)[: max(0, len(idle) - limit)]:
            meta = each["metadata"]
            await self.client.delete(REPLICA_SETS, meta["name"], namespace=meta["namespace"], uid=meta["uid"])
            self._expectations.removed(key, self._sets, each)


def _current(deployment: Json, sets: list[Json]) -> Json | None:
    template = deployment["spec"]["template"]
    same = [each for each in sets if pod_templates.same_template(each["spec"]["template"], template)]
    return min(same, key=_age, default=None)


def _bounds(deployment: Json) -> rollout_sizes.Bounds:
    rolling: dict[str, Any] = deployment["spec"].get("strategy", {}).get("rollingUpdate") or {}
    wanted = deployment["spec"].get("replicas", 1)
    return rollout_sizes.bounds(wanted, rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%"))


def _replica_set(deployment: Json, size: int, revision: str) -> Json:
    spec, meta = deployment["spec"], deployment["metadata"]
    template = copy.deepcopy(spec["template"])
    digest = pod_templates.digest(template, (deployment.get("status") or {}).get("collisionCount"))
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels[pod_templates.HASH_LABEL] = digest
    selector = copy.deepcopy(spec["selector"])
    selector.setdefault("matchLabels", {})[pod_templates.HASH_LABEL] = digest
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name']}-{digest}",
            "namespace": meta["namespace"],
            "labels": dict(labels),
            "annotations": _annotations(deployment, revision),
            "ownerReferences": [pod_templates.owner_reference(DEPLOYMENTS, deployment)],
        },
        "spec": {
            "replicas": size,
            "selector": selector,
            "template": template,
            "minReadySeconds": spec.get("minReadySeconds", 0),
        },
    }


def _annotations(deployment: Json, revision: str) -> dict[str, str]:
    own = deployment["metadata"].get("annotations") or {}
    kept = {name: value for name, value in own.items() if name not in _PRIVATE}
    return kept | _counts(deployment) | {REVISION: revision}


def _counts(deployment: Json) -> dict[str, str]:
    wanted = deployment["spec"].get("replicas", 1)
    return {DESIRED: str(wanted), MOST: str(wanted + _bounds(deployment).surge)}


def _rescaled(deployment: Json, sets: list[Json]) -> bool:
    """Whether the wanted number has changed since the ReplicaSets were told."""
    wanted = deployment["spec"].get("replicas", 1)
    return any(_size(each) and _annotated(each, DESIRED) not in (0, wanted) for each in sets)


def _annotated(replica_set: Json, name: str) -> int:
    text = (replica_set["metadata"].get("annotations") or {}).get(name, "")
    return int(text) if text.isdigit() else 0


def _size(replica_set: Json) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def _available(replica_set: Json) -> int:
    return int((replica_set.get("status") or {}).get("availableReplicas", 0))


def _revision(replica_set: Json) -> int:
    return int((replica_set["metadata"].get("annotations") or {}).get(REVISION, "0") or 0)


def _age(replica_set: Json) -> tuple[str, str]:
    return replica_set["metadata"]["creationTimestamp"], replica_set["metadata"]["name"]
