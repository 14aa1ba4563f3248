"""DaemonSets: one pod on every node that the template's rules allow."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from apportion.apis.kinds import DAEMON_SETS, NODES, PODS
from apportion.apis.noderules import compile_rules
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.taints import HARD_EFFECTS, tolerated
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, deleting
from pocketkube.controllers.workloads import pod_adoption, pod_templates
from pocketkube.controllers.workloads.pod_sets import PodSet
from pocketkube.controllers.workloads.revisions import HASH_LABEL, Revisions
from pocketkube.controllers.workloads.rollout_sizes import bounds

# A node may be in any of these states and its daemons stay
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_FAILED_POD_SECONDS = 1.0


class DaemonSets(Reconciler):
    name = "daemonsets"
    component = "daemonset-controller"

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self._pods = PodSet(control, DAEMON_SETS, self.recorder)
        self._revisions = Revisions(control.client, control.informers, DAEMON_SETS)

    def subscribe(self) -> None:
        self.follow(DAEMON_SETS)
        self.follow_owned(PODS, "DaemonSet")
        self.follow_orphans(PODS, DAEMON_SETS)

        def node_changed(old: Json | None, new: Json | None) -> None:
            if old is None or new is None or _facts(old) != _facts(new):
                for each in self.informers.of(DAEMON_SETS):
                    self.queue.add((each["metadata"]["namespace"], each["metadata"]["name"]))

        self.informers.of(NODES).on_change(node_changed)

    async def reconcile(self, key: Key) -> float | None:
        owner = self.informers.of(DAEMON_SETS).get(key[1], key[0])
        if owner is None:
            return None
        waiting = self._pods.expectations.wait(key)
        if waiting is not None:
            return waiting
        selector = pod_facts.selector(owner["spec"].get("selector"))
        mine = await pod_adoption.claimed(self.client, self.informers.of(PODS), DAEMON_SETS, owner, selector)
        if deleting(owner):
            return None
        digest = await self._revisions.current(owner)
        by_node = _by_node(mine)
        wanted = [node for node in self.informers.of(NODES) if self._belongs(owner, node, by_node)]
        failed = await self._place(key, owner, wanted, by_node, digest)
        await self._update(key, owner, wanted, by_node, digest)
        again = await self._report(owner, wanted, by_node, digest)
        await self._revisions.forget(owner, {pod_facts.labels(pod).get(HASH_LABEL, "") for pod in mine} | {digest})
        return _FAILED_POD_SECONDS if failed else again

    def _belongs(self, owner: Json, node: Json, by_node: dict[str, list[Json]]) -> bool:
        """A daemon that already runs may stay, unless a NoExecute taint evicts it."""
        there = any(pod_facts.active(pod) for pod in by_node.get(node["metadata"]["name"], ()))
        return should_run(owner["spec"]["template"], node, effects=("NoExecute",) if there else HARD_EFFECTS)

    async def _place(
        self, key: Key, owner: Json, wanted: list[Json], by_node: dict[str, list[Json]], digest: str
    ) -> bool:
        """Create what is missing, delete what is too much; whether pods had failed."""
        names = {node["metadata"]["name"] for node in wanted}
        surplus = [pod for node, there in by_node.items() if node not in names for pod in there if not deleting(pod)]
        failed: list[Json] = []
        missing: list[str] = []
        for name in sorted(names):
            there = by_node.get(name, [])
            failed += [pod for pod in there if pod_facts.terminal(pod) and not deleting(pod)]
            living = sorted((pod for pod in there if pod_facts.active(pod)), key=_worth)
            surplus += living[1:]
            if not there:
                missing.append(name)
        for pod in failed:
            name = f"{key[0]}/{pod['metadata']['name']}"
            text = f"Found failed daemon pod {name} on node {_node_of(pod)}, will try to kill it"
            self.say(DAEMON_SETS, owner, "FailedDaemonPod", text, warning=True)
        await self._pods.delete(key, owner, surplus + failed)
        await self._pods.create(key, owner, [self._pod(owner, name, digest) for name in missing])
        return bool(failed)

    async def _update(
        self, key: Key, owner: Json, wanted: list[Json], by_node: dict[str, list[Json]], digest: str
    ) -> None:
        """Replace pods of older templates, as many at once as may be missing."""
        strategy = owner["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        rolling = strategy.get("rollingUpdate") or {}
        limit = bounds(len(wanted), 0, rolling.get("maxUnavailable", 1)).unavailable
        outdated: list[Json] = []
        unavailable = 0
        for node in wanted:
            living = [pod for pod in by_node.get(node["metadata"]["name"], []) if pod_facts.active(pod)]
            unavailable += not any(pod_facts.ready(pod) for pod in living)
            outdated += [pod for pod in living if pod_facts.labels(pod).get(HASH_LABEL) != digest]
        broken = [pod for pod in outdated if not pod_facts.ready(pod)]
        healthy = [pod for pod in outdated if pod_facts.ready(pod)]
        await self._pods.delete(key, owner, broken + healthy[: max(0, limit - unavailable)])

    async def _report(
        self, owner: Json, wanted: list[Json], by_node: dict[str, list[Json]], digest: str
    ) -> float | None:
        names = {node["metadata"]["name"] for node in wanted}
        present = [pod for name in names for pod in by_node.get(name, [])[:1]]
        least = owner["spec"].get("minReadySeconds", 0)
        waits = [pod_facts.available_in(pod, least, self.clock.now()) for pod in present]
        available = sum(wait == 0.0 for wait in waits)
        status: dict[str, Any] = {
            "currentNumberScheduled": len(present),
            "desiredNumberScheduled": len(names),
            "numberMisscheduled": sum(1 for name in by_node if name not in names),
            "numberReady": sum(pod_facts.ready(pod) for pod in present),
            "numberAvailable": available or None,
            "numberUnavailable": len(names) - available or None,
            "updatedNumberScheduled": sum(pod_facts.labels(pod).get(HASH_LABEL) == digest for pod in present) or None,
            "observedGeneration": owner["metadata"].get("generation", 1),
        }
        await self.set_status(DAEMON_SETS, owner, status)
        return min((wait for wait in waits if wait), default=None)

    def _pod(self, owner: Json, node: str, digest: str) -> Json:
        template = copy.deepcopy(owner["spec"]["template"])
        pod = pod_templates.pod_from(template, DAEMON_SETS, owner, labels={HASH_LABEL: digest})
        _pin(pod["spec"], node)
        tolerations = pod["spec"].setdefault("tolerations", [])
        tolerations += [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
        if pod["spec"].get("hostNetwork"):
            unavailable = "node.kubernetes.io/network-unavailable"
            tolerations.append({"key": unavailable, "operator": "Exists", "effect": "NoSchedule"})
        return pod


def should_run(template: Json, node: Json, *, effects: tuple[str, ...] = HARD_EFFECTS) -> bool:
    """Whether a daemon of this template belongs on a node, judged by taints of these effects."""
    pod = msgspec.convert({"metadata": {}, "spec": template["spec"]}, Pod, strict=False)
    here = msgspec.convert(node, Node, strict=False)
    if not compile_rules(pod).selects(here.metadata.name, here.metadata.labels):
        return False
    return all(
        taint.effect not in effects or (taint.key, taint.effect) in _TOLERATED or tolerated(taint, pod.spec.tolerations)
        for taint in here.spec.taints
    )


def _pin(spec: Json, node: str) -> None:
    """Bind to one node by a rule that the scheduler follows; other required rules have been checked."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}


def _worth(pod: Json) -> tuple[bool, float]:
    """Of several pods on a node the first in this order stays."""
    return not pod_facts.ready(pod), pod_facts.created(pod)


def _by_node(mine: list[Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for pod in sorted(mine, key=pod_facts.created):
        found.setdefault(_node_of(pod), []).append(pod)
    return found


def _node_of(pod: Json) -> str:
    """The node of a daemon's pod, also before it is bound."""
    if node := pod["spec"].get("nodeName"):
        return str(node)
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""


def _facts(node: Json) -> tuple[Any, ...]:
    return node["metadata"].get("labels"), node["spec"].get("taints"), node["spec"].get("unschedulable")
