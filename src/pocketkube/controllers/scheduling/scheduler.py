"""The default scheduler: ordinary pods and static devices, by the core's node rules.

Pods are decided one after the other in the order of priority and age. A decision counts at once, before the API
has confirmed it. A pod that fits nowhere is looked at again when nodes or pods change.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import msgspec

from apportion.apis import names
from apportion.apis.errors import ApportionError, InputError
from apportion.apis.kinds import NAMESPACES, NODES, PODS
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod
from apportion.cluster import errors
from apportion.cluster.events import Recorder
from apportion.core.catalog import Catalog
from apportion.core.filters import Checks, resources
from apportion.core.fleet import Fleet, NodeFacts
from apportion.core.node import NodeState
from apportion.core.reasons import Code, Reason
from pocketkube import pod_status
from pocketkube.clock import stamp
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Control, Json, about_object, deleting
from pocketkube.controllers.scheduling import messages, scores

log = logging.getLogger(__name__)

_BATCH = 10  # decisions between two turns of everybody else in this process
_ENOUGH = 100  # in a large cluster the best of so many nodes that fit is good enough, as kube-scheduler has it


class DefaultScheduler:
    """Binds pods whose `schedulerName` is the default one."""

    name = "scheduler"

    def __init__(self, control: Control) -> None:
        self._client = control.client
        self._informers = control.informers
        self._clock = control.clock
        self._recorder = Recorder(control.client, names.DEFAULT_SCHEDULER, ordered=True)
        self._fleet = Fleet(Catalog.shipped())
        self._siblings: Counter[tuple[str, str]] = Counter()  # node and owner -> pods
        self._start = 0  # where the next look at the nodes begins
        self._waiting: dict[str, Json] = {}  # by uid
        self._stuck: set[str] = set()  # waiting, and nothing has changed since they were tried
        self._told: dict[str, str] = {}
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
            self._fleet.remove_node(old["metadata"]["name"])
        else:
            facts = _facts(msgspec.convert(new, Node, strict=False))
            state = self._fleet.nodes.get(facts.name)
            if state is not None and state.facts == facts:
                return
            self._fleet.set_node(facts)
        self._try_again()

    def _namespace_changed(self, old: Json | None, new: Json | None) -> None:
        obj = new or old
        assert obj is not None
        self._fleet.set_namespace(obj["metadata"]["name"], None if new is None else pod_facts.labels(new))

    def _pod_changed(self, old: Json | None, new: Json | None) -> None:
        obj = new or old
        assert obj is not None
        uid = obj["metadata"]["uid"]
        if new is None or pod_facts.terminal(new):
            self._waiting.pop(uid, None)
            self._told.pop(uid, None)
            self._stuck.discard(uid)
            if uid in self._fleet.pod_nodes:
                self._take_off(uid)
                self._try_again()
        elif new["spec"].get("nodeName"):
            self._waiting.pop(uid, None)
            self._stuck.discard(uid)
            self._hold(new)
        elif new["spec"].get("schedulerName", names.DEFAULT_SCHEDULER) == names.DEFAULT_SCHEDULER:
            self._wait_for(old, new)

    def _hold(self, pod: Json) -> None:
        request = self._request(pod, quiet=True)
        if request is not None and self._fleet.pod_nodes.get(request.uid) != pod["spec"]["nodeName"]:
            self._put_on(request, pod["spec"]["nodeName"])

    def _put_on(self, request: Request, node: str) -> None:
        self._take_off(request.uid)
        self._fleet.add_pod(request, node)
        if request.owner:
            self._siblings[node, request.owner] += 1

    def _take_off(self, uid: str) -> None:
        node = self._fleet.pod_nodes.get(uid)
        if node is None:
            return
        owner = self._fleet.nodes[node].pods[uid].owner
        self._fleet.remove_pod(uid)
        if owner:
            self._siblings[node, owner] -= 1
            if not self._siblings[node, owner]:
                del self._siblings[node, owner]

    def _wait_for(self, old: Json | None, new: Json) -> None:
        uid = new["metadata"]["uid"]
        if uid in self._fleet.pod_nodes:  # assumed; the binding is on its way
            return
        if deleting(new):
            self._waiting.pop(uid, None)
            return
        self._waiting[uid] = new
        if old is None or old["spec"] != new["spec"] or pod_facts.labels(old) != pod_facts.labels(new):
            self._stuck.discard(uid)
            self._wake.set()

    def _try_again(self) -> None:
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
        request = self._request(pod)
        if request is None:
            self._stuck.add(uid)
            return
        fitting, refusals = self._fitting(request)
        if not fitting:
            self._stuck.add(uid)
            preempts = pod["spec"].get("preemptionPolicy") != "Never"
            await self._tell(pod, messages.sentence(refusals, preempts=preempts))
            return
        best = scores.best(fitting, request, self._siblings)
        self._put_on(request, best.name)
        self._waiting.pop(uid, None)
        await self._bind(pod, best.name)

    def _fitting(self, request: Request) -> tuple[list[NodeState], list[list[Reason]]]:
        """Enough nodes that fit, and why the others looked at do not; each look begins where the last one ended."""
        checks = Checks(self._fleet, request)
        nodes = list(self._fleet)
        fitting: list[NodeState] = []
        refusals: list[list[Reason]] = []
        for step in range(len(nodes)):
            node = nodes[(self._start + step) % len(nodes)]
            reasons = against(checks, node, request)
            if reasons:
                refusals.append(reasons)
            else:
                fitting.append(node)
            if len(fitting) >= _ENOUGH:
                self._start = (self._start + step + 1) % len(nodes)
                break
        return fitting, refusals

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
        """Say why, once per answer: an event and the condition that kubectl shows."""
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

    def _request(self, pod: Json, *, quiet: bool = False) -> Request | None:
        try:
            return parse_pod(msgspec.convert(pod, Pod, strict=False))
        except (ApportionError, msgspec.ValidationError) as error:
            if not quiet:
                self._recorder.warn(about_object(PODS, pod), "FailedScheduling", str(error))
            return None


def against(checks: Checks, node: NodeState, request: Request) -> list[Reason]:
    """What keeps a pod off a node: the first rule, but of resources all that are short."""
    named = request.rules.required.names() if request.rules.required is not None else None
    if named is not None and node.name not in named:
        return [messages.NOT_NAMED]
    reason = checks.against_node(node) or resources.against_gpu_resources(node, request)
    if reason is not None and reason.code in {Code.PODS, Code.RESOURCE}:
        return resources.shortages(node, request)
    return [reason] if reason is not None else []


def _facts(node: Node) -> NodeFacts:
    try:
        allocatable = node.allocatable()
    except InputError as error:
        log.error("node %s offers nothing: %s", node.metadata.name, error)  # noqa: TRY400
        allocatable = {}
    spec = node.spec
    return NodeFacts(node.metadata.name, node.metadata.labels, tuple(spec.taints), spec.unschedulable, allocatable)
