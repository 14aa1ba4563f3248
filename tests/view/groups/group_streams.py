"""Random streams of pods, their owners, PodGroups, priority classes and queues."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from apportion.apis import names
from tests.builders import groups, pods
from tests.view import edits
from tests.view.objects import OWNERS, POD_GROUPS, PODS, PRIORITIES, QUEUES, Cluster

Json = dict[str, Any]
TEAMS = ("one", "two", "three", "default-queue")
GANGS = ("g1", "g2", "g3")
LEVELS = ("low", "high")
SCHEDULERS = (names.DAS_SCHEDULER,) * 5 + (names.KAI_SCHEDULER, names.DEFAULT_SCHEDULER)
NODES = ("n1", "n2")


class GroupStream:
    """One random sequence of changes. `bound` is called before a pod gets its node."""

    def __init__(self, cluster: Cluster, dice: random.Random, *, bound: Callable[[str, str], None]) -> None:
        self.cluster = cluster
        self._dice = dice
        self._bound = bound
        self._count = 0

    def step(self) -> None:
        steps: tuple[tuple[int, Callable[[], None]], ...] = (
            (20, self._pod),
            (8, self._bind),
            (8, self._start),
            (8, self._pod_changes),
            (6, self._pod_ends),
            (10, self._owner),
            (8, self._owner_changes),
            (3, self._owner_goes),
            (16, self._pod_group),
            (3, lambda: self.cluster.remove(POD_GROUPS, f"default/{self._dice.choice(GANGS)}")),
            (8, self._priority),
            (1, lambda: self.cluster.remove(PRIORITIES, self._dice.choice(LEVELS))),
            (5, self._queue),
            (3, lambda: self.cluster.remove(QUEUES, self._dice.choice(TEAMS))),
        )
        self._dice.choices([act for _, act in steps], [weight for weight, _ in steps])[0]()

    def _chance(self, likelihood: float) -> bool:
        return self._dice.random() < likelihood

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _some(self, kind: str, fits: Callable[[Json], bool] = lambda _: True) -> str:
        found = [key for key, obj in self.cluster.all(kind).items() if fits(obj)]
        return self._dice.choice(found) if found else ""

    def _labels(self, likelihood: float = 0.5) -> Json:
        labels = {names.QUEUE_LABEL: self._dice.choice(TEAMS)} if self._chance(likelihood) else {}
        if self._chance(0.2):
            labels[names.PREEMPTIBILITY_LABEL] = self._dice.choice(("preemptible", "non-preemptible"))
        return labels

    # Pods

    def _pod(self) -> None:
        name = self._name("p")
        above = self._above()
        roles = {"ray.io/group": self._dice.choice(("headgroup", "workers"))} if self._chance(0.5) else {}
        grouped = {names.POD_GROUP: self._dice.choice(GANGS)} if self._chance(0.3) else {}
        priority = {"priority": 80, "priorityClassName": "own"} if self._chance(0.3) else {}
        body = pods.pod(
            name,
            uid=f"uid-{name}",
            scheduler=self._dice.choice(SCHEDULERS),
            labels={**self._labels(), **roles},
            annotations=grouped,
            limits={"cpu": 1},
            **priority,
        )
        body["status"] = {"phase": "Pending"}
        self.cluster.put(PODS, groups.owned(body, above) if above is not None else body)

    def _above(self) -> Json | None:
        """An owner: one that is there, one that was removed or comes later, a pod, or none."""
        if self._chance(0.3):
            return None
        if self._chance(0.15):
            key = self._some(PODS)
            return {"apiVersion": "v1", "kind": "Pod", **self.cluster.all(PODS)[key]} if key else None
        if self._chance(0.1):
            kind = self._dice.choice(("Job", "Missing"))
            number = self._count + self._dice.randrange(3)
            return groups.owner("batch/v1", kind, f"j{number}", uid=f"uid-j{number}")
        key = self._some(OWNERS)
        return self.cluster.all(OWNERS)[key] if key else None

    def _bind(self) -> None:
        key = self._some(
            PODS, lambda pod: not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        )
        if not key:
            return
        node = self._dice.choice(NODES)
        if self._chance(0.6):
            self._bound(self.cluster.all(PODS)[key]["metadata"]["uid"], node)
        if self._chance(0.3):
            self._owner_changes()
        named = self._chance(0.5)

        def bound(pod: Json) -> None:
            pod["spec"]["nodeName"] = node
            if named and names.POD_GROUP not in pod["metadata"].get("annotations", {}):
                pod["metadata"].setdefault("annotations", {})[names.POD_GROUP] = _made_group(pod)

        self.cluster.change(PODS, key, bound)

    def _start(self) -> None:
        key = self._some(PODS, lambda pod: bool(pod["spec"].get("nodeName")))
        if key:
            started = f"2026-01-01T00:00:{self._dice.randrange(60):02}Z"
            self.cluster.change(PODS, key, lambda pod: pod["status"].update(phase="Running", startTime=started))

    def _pod_changes(self) -> None:
        key = self._some(PODS)
        if not key:
            return

        def relabel(pod: Json) -> None:
            pod["metadata"]["labels"] = self._labels()

        def orphan(pod: Json) -> None:
            pod["metadata"].pop("ownerReferences", None)

        def join(pod: Json) -> None:
            pod["metadata"]["annotations"] = {names.POD_GROUP: self._dice.choice(GANGS)} if self._chance(0.7) else {}

        self.cluster.change(PODS, key, self._dice.choice((relabel, orphan, join)))

    def _pod_ends(self) -> None:
        key = self._some(PODS)
        if key and self._chance(0.5):
            self.cluster.remove(PODS, key)
        elif key:
            self.cluster.change(PODS, key, self._dice.choice((edits.end, edits.delete)))

    # Owners and groups

    def _owner(self) -> None:
        kind = self._dice.choice(("Job", "Job", "CronJob", "RayCluster", "ReplicaSet"))
        name = self._name("j" if kind == "Job" else "o")
        version = {"RayCluster": "ray.io/v1", "ReplicaSet": "apps/v1"}.get(kind, "batch/v1")
        cron = self._some(OWNERS, lambda owner: owner["kind"] == "CronJob") if kind == "Job" else ""
        above = self.cluster.all(OWNERS)[cron] if cron and self._chance(0.5) else None
        made = groups.owner(version, kind, name, labels=self._labels(), above=above, uid=f"uid-{name}")
        made["metadata"]["creationTimestamp"] = f"2026-01-01T00:{self._count // 60 % 60:02}:{self._count % 60:02}Z"
        if kind == "RayCluster":
            self._resize(made)
        self.cluster.put(OWNERS, made)

    def _resize(self, owner: Json) -> None:
        workers = {"groupName": "workers", "minReplicas": self._dice.choice((0, 1, 3, -1))}
        owner["spec"] = {"headGroupSpec": {}, "workerGroupSpecs": [workers]}

    def _owner_changes(self) -> None:
        key = self._some(OWNERS)
        if not key:
            return

        def relabel(owner: Json) -> None:
            owner["metadata"]["labels"] = self._labels(0.7)
            if self._chance(0.3):
                owner["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = self._dice.choice(LEVELS)

        def touch(owner: Json) -> None:
            owner["metadata"]["resourceVersion"] = str(self._dice.randrange(1000))

        ray = self.cluster.all(OWNERS)[key]["kind"] == "RayCluster"
        self.cluster.change(OWNERS, key, self._dice.choice((relabel, touch, self._resize if ray else relabel)))

    def _owner_goes(self) -> None:
        key = self._some(OWNERS)
        if key:
            self.cluster.remove(OWNERS, key)

    def _pod_group(self) -> None:
        spec: Json = {"queue": self._dice.choice(TEAMS)} if self._chance(0.4) else {}
        if self._chance(0.3):
            spec["priorityClassName"] = self._dice.choice(LEVELS)
        if self._chance(0.3):
            spec["preemptibility"] = self._dice.choice(("preemptible", "non-preemptible", "perhaps"))
        pod = self._some(PODS)
        made = bool(pod) and self._chance(0.4)
        name = _made_group(self.cluster.all(PODS)[pod]) if made else self._dice.choice(GANGS)
        body = groups.pod_group(name, self._dice.choice((0, 1, 2, 3)), **spec)
        if made and self._chance(0.9):
            body["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY_SCHEDULER}
        if self._chance(0.8):
            since = f"2026-01-01T00:00:{self._dice.randrange(60):02}Z"
            condition = {"type": "BelowMinimum", "status": self._dice.choice(("True", "False"))}
            body["status"] = {"conditions": [{**condition, "lastTransitionTime": since}]}
        self.cluster.put(POD_GROUPS, body)

    def _priority(self) -> None:
        level = {"metadata": {"name": self._dice.choice(LEVELS)}, "value": self._dice.choice((10, 60, 120))}
        self.cluster.put(PRIORITIES, level)

    def _queue(self) -> None:
        name, above = self._dice.choice(TEAMS), self._dice.choice(("", "", *TEAMS))
        gpus = self._dice.choice((0, 1, -1, -5))
        self.cluster.put(QUEUES, groups.queue(name, parent="" if above == name else above, gpus=gpus))


def _made_group(pod: Json) -> str:
    """The name of the PodGroup that the scheduler makes for the owner of a pod, or for the pod."""
    meta = next(iter(pod["metadata"].get("ownerReferences", ())), pod["metadata"])
    return f"pg-{meta['name']}-{meta['uid']}"
