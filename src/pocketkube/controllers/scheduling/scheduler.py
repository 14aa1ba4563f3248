"""The default scheduler: pods that name no other one, by kube-scheduler's rules.

Pods are decided one after the other in the order of priority and age. A decision counts at once, before the API
has confirmed it. A pod that fits nowhere is looked at again when nodes or pods change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter

import msgspec

from apportion.apis.errors import InputError
from apportion.apis.kinds import NAMESPACES, NODES, PODS
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.cluster import errors
from apportion.cluster.events import Recorder
from pocketkube import pod_status
from pocketkube.clock import stamp
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Control, Json, about_object, deleting
from pocketkube.controllers.scheduling import refusals, rule_limits, scores
from pocketkube.controllers.scheduling.cluster_state import ClusterState, NodeFacts, NodeState, PodFacts
from pocketkube.controllers.scheduling.filters import Filters
from pocketkube.controllers.scheduling.refusals import Refusal

log = logging.getLogger(__name__)

DEFAULT_SCHEDULER = "default-scheduler"
_BATCH = 10  # decisions between two turns of everybody else in this process
_SLICE_SECONDS = 0.01  # of a decision between two turns of everybody else
_ENOUGH = 100  # in a large cluster the best of so many nodes that fit is good enough, as kube-scheduler has it


class DefaultScheduler:
    """Binds pods whose `schedulerName` is the default one."""

    name = "scheduler"

    def __init__(self, control: Control) -> None:
        self._client = control.client
        self._informers = control.informers
        self._clock = control.clock
        self._recorder = Recorder(control.client, DEFAULT_SCHEDULER, ordered=True)
        self._cluster = ClusterState()
        self._siblings: Counter[tuple[str, str]] = Counter()  # node and owner -> pods
        self._start = 0  # where the next look at the nodes begins
        self._waiting: dict[str, Json] = {}  # by uid
        self._stuck: set[str] = set()  # waiting, and nothing has changed since they were tried
        self._told: dict[str, str] = {}
        self._changes = 0  # of nodes and pods that a decision depends on
        self._wake = asyncio.Event()

    def subscribe(self) -> None:
        self._informers.of(NODES).on_change(self._node_changed)
        self._informers.of(PODS).on_change(self._pod_changed)
        self._informers.of(NAMESPACES).on_change(self._namespace_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._decide_forever())

    # What the cluster says

    def _node_changed(self, old: Json | None, new: Json | None) -> None:
        if new is None:
            assert old is not None
            self._cluster.remove_node(old["metadata"]["name"])
        elif not self._cluster.set_node(NodeFacts.of(msgspec.convert(new, Node, strict=False))):
            return
        self._try_again()

    def _namespace_changed(self, old: Json | None, new: Json | None) -> None:
        obj = new or old
        assert obj is not None
        self._cluster.set_namespace(obj["metadata"]["name"], None if new is None else pod_facts.labels(new))

    def _pod_changed(self, old: Json | None, new: Json | None) -> None:
        obj = new or old
        assert obj is not None
        uid = obj["metadata"]["uid"]
        if new is None or pod_facts.terminal(new):
            self._waiting.pop(uid, None)
            self._told.pop(uid, None)
            self._stuck.discard(uid)
            if uid in self._cluster.pod_nodes:
                self._take_off(uid)
                self._try_again()
        elif new["spec"].get("nodeName"):
            self._waiting.pop(uid, None)
            self._stuck.discard(uid)
            self._hold(new)
        elif new["spec"].get("schedulerName", DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER:
            self._wait_for(old, new)

    def _hold(self, pod: Json) -> None:
        facts = self._facts(pod, quiet=True)
        if facts is not None and self._cluster.pod_nodes.get(facts.uid) != pod["spec"]["nodeName"]:
            self._put_on(facts, pod["spec"]["nodeName"])

    def _put_on(self, pod: PodFacts, node: str) -> None:
        self._changes += 1
        self._take_off(pod.uid)
        self._cluster.add_pod(pod, node)
        if pod.owner:
            self._siblings[node, pod.owner] += 1

    def _take_off(self, uid: str) -> None:
        pod = self._cluster.pod(uid)
        if pod is None:
            return
        place = self._cluster.pod_nodes[uid], pod.owner
        self._cluster.remove_pod(uid)
        if pod.owner:
            self._siblings[place] -= 1
            if not self._siblings[place]:
                del self._siblings[place]

    def _wait_for(self, old: Json | None, new: Json) -> None:
        uid = new["metadata"]["uid"]
        if uid in self._cluster.pod_nodes:  # assumed; the binding is on its way
            return
        if deleting(new):
            self._waiting.pop(uid, None)
            return
        self._waiting[uid] = new
        if old is None or old["spec"] != new["spec"] or pod_facts.labels(old) != pod_facts.labels(new):
            self._stuck.discard(uid)
            self._wake.set()

    def _try_again(self) -> None:
        self._changes += 1
        self._stuck.clear()
        if self._waiting:
            self._wake.set()

    # Deciding

    async def _decide_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for number, uid in enumerate(self._ready_to_try(), start=1):
                await self._decide(uid)
                if number % _BATCH == 0:
                    await asyncio.sleep(0)

    def _ready_to_try(self) -> list[str]:
        ready = [pod for uid, pod in self._waiting.items() if uid not in self._stuck]

        def order(pod: Json) -> tuple[int, str, str]:
            meta = pod["metadata"]
            return -(pod["spec"].get("priority") or 0), meta["creationTimestamp"], f"{meta['namespace']}/{meta['name']}"

        return [pod["metadata"]["uid"] for pod in sorted(ready, key=order)]

    async def _decide(self, uid: str) -> None:
        pod = self._waiting.get(uid)  # as it is by now: others were bound since the round began
        if pod is None:
            return
        if pod["spec"].get("schedulingGates"):
            self._stuck.add(uid)
            return
        facts = self._facts(pod)
        if facts is None:
            self._stuck.add(uid)
            return
        changes = self._changes
        fitting, refused = await self._fitting(facts)
        if uid not in self._waiting:  # gone meanwhile
            return
        if not fitting:
            self._stuck.add(uid)
            preempts = pod["spec"].get("preemptionPolicy") != "Never"
            await self._tell(pod, refusals.sentence(refused, preempts=preempts))
            return
        best = scores.best(fitting, facts, self._siblings)
        if self._changes != changes and not self._still_fits(facts, best):
            self._wake.set()  # the cluster changed while it was looked at
            return
        self._put_on(facts, best.name)
        self._waiting.pop(uid, None)
        await self._bind(pod, best.name)

    async def _fitting(self, pod: PodFacts) -> tuple[list[NodeState], list[list[Refusal]]]:
        """Enough nodes that fit, and why the others looked at do not; each look begins where the last one ended."""
        filters = Filters(self._cluster, pod)
        nodes = list(self._cluster)
        fitting: list[NodeState] = []
        refused: list[list[Refusal]] = []
        begun = time.monotonic()
        for step in range(len(nodes)):
            if time.monotonic() - begun > _SLICE_SECONDS:
                await asyncio.sleep(0)
                begun = time.monotonic()
            node = nodes[(self._start + step) % len(nodes)]
            if against := filters.against(node):
                refused.append(against)
            else:
                fitting.append(node)
            if len(fitting) >= _ENOUGH:
                self._start = (self._start + step + 1) % len(nodes)
                break
        return fitting, refused

    def _still_fits(self, pod: PodFacts, node: NodeState) -> bool:
        return node.name in self._cluster.nodes and not Filters(self._cluster, pod).against(node)

    async def _bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        try:
            await self._client.bind(meta["namespace"], meta["name"], meta["uid"], node)
        except errors.ClusterError as error:
            self._take_off(meta["uid"])
            if not isinstance(error, errors.NotFound | errors.Conflict):
                log.warning("pod %s/%s: %s", meta["namespace"], meta["name"], error)
                self._waiting[meta["uid"]] = pod
                asyncio.get_running_loop().call_later(1.0, self._wake.set)
            return
        text = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self._recorder.record(about_object(PODS, pod), "Scheduled", text)

    async def _tell(self, pod: Json, text: str) -> None:
        """Report why, once per result: an event and the condition that kubectl shows."""
        meta = pod["metadata"]
        if self._told.get(meta["uid"]) == text:
            return
        self._told[meta["uid"]] = text
        self._recorder.warn(about_object(PODS, pod), "FailedScheduling", text)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": text,
            "lastProbeTime": None,
            "lastTransitionTime": stamp(self._clock.now()),
            "observedGeneration": meta.get("generation", 1),
        }
        try:
            await pod_status.merge(self._client, pod, {"conditions": [condition]})
        except errors.ClusterError as error:
            log.debug("condition of %s: %s", meta["name"], error)

    def _facts(self, pod: Json, *, quiet: bool = False) -> PodFacts | None:
        try:
            if not quiet:
                rule_limits.check(pod["spec"])
            return PodFacts.of(msgspec.convert(pod, Pod, strict=False))
        except (InputError, msgspec.ValidationError) as error:
            if not quiet:
                self._recorder.warn(about_object(PODS, pod), "FailedScheduling", str(error))
            return None
