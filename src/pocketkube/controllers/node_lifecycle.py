"""Nodes that stop reporting, are cordoned or tainted, and the eviction of their pods."""

from __future__ import annotations

import msgspec

from apportion.apis.kinds import LEASES, NODES, PODS
from apportion.apis.nodes import Taint
from apportion.apis.pods import Toleration
from apportion.apis.taints import tolerated
from apportion.cluster import errors
from pocketkube import pod_status
from pocketkube.clock import seconds_of, stamp
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, about_object, deleting, set_condition
from pocketkube.informers import BY_NODE

LEASE_NAMESPACE = "kube-node-lease"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
SILENCE_SECONDS = 50.0
ORPHAN_SECONDS = 2.0  # a real cluster waits for 40 s before it deletes the pods of a node that is gone
_OURS = (UNSCHEDULABLE, NOT_READY, UNREACHABLE)


class NodeLifecycle(Reconciler):
    name = "nodes"
    component = "node-controller"

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self._tainted: dict[tuple[str, str], float] = {}  # node and taint -> since when
        self._ready: set[str] = set()

    def subscribe(self) -> None:
        self.follow(NODES)
        self.informers.of(NODES).on_change(self._note_readiness)

        def lease_changed(_: Json | None, new: Json | None) -> None:
            if new is not None and new["metadata"]["namespace"] == LEASE_NAMESPACE:
                self.queue.add(("", new["metadata"]["name"]))

        def pod_changed(old: Json | None, new: Json | None) -> None:
            obj = new or old
            if obj is not None and (node := obj["spec"].get("nodeName")) and self._matters(node, old, new):
                self.queue.add(("", node))

        self.informers.of(LEASES).on_change(lease_changed)
        self.informers.of(PODS).on_change(pod_changed)

    def _note_readiness(self, old: Json | None, new: Json | None) -> None:
        """If no node is ready, the fault is elsewhere and no pod is evicted."""
        before = bool(self._ready)
        if new is not None and _ready_state(new) == "True":
            self._ready.add(new["metadata"]["name"])
        elif (gone := new or old) is not None:
            self._ready.discard(gone["metadata"]["name"])
        if before != bool(self._ready):
            for node in self.informers.of(NODES):
                self.queue.add(("", node["metadata"]["name"]))

    def _matters(self, node: str, old: Json | None, new: Json | None) -> bool:
        """Pods on tainted nodes, and pods whose node does not exist."""
        known = self.informers.of(NODES).get(node)
        if known is None:
            return True
        return new is not None and (old is None or deleting(new)) and bool(known["spec"].get("taints"))

    async def reconcile(self, key: Key) -> float | None:
        name = key[1]
        node = self.informers.of(NODES).get(name)
        if node is None:
            return await self._clear_gone_node(name)
        self._tainted.pop((name, ""), None)
        silent_in = self._silent_in(node)
        state = _ready_state(node)
        if silent_in is not None and silent_in <= 0 and state != "Unknown":
            await self._mark_silent(node)
            return 0.1
        await self._set_taints(node, state)
        if state in ("False", "Unknown"):
            await self._unready_pods(name)
        evicted = await self._evict(node)
        return min((each for each in (silent_in, evicted) if each is not None and each > 0), default=None)

    # Missing heartbeats

    def _silent_in(self, node: Json) -> float | None:
        """Seconds until a node counts as unreachable; None for nodes that never had a lease."""
        lease = self.informers.of(LEASES).get(node["metadata"]["name"], LEASE_NAMESPACE)
        renewed = (lease or {}).get("spec", {}).get("renewTime")
        return seconds_of(renewed) + SILENCE_SECONDS - self.clock.now() if renewed else None

    async def _mark_silent(self, node: Json) -> None:
        now = stamp(self.clock.now())
        conditions: list[Json] = (node.get("status") or {}).get("conditions") or []
        for each in list(conditions):
            if each["status"] != "Unknown":
                text = "Kubelet stopped posting node status."
                beat = each.get("lastHeartbeatTime", now)
                conditions = set_condition(
                    conditions, each["type"], "Unknown", "NodeStatusUnknown", text, now, lastHeartbeatTime=beat
                )
        await self.set_status(NODES, node, {"conditions": conditions})
        name = node["metadata"]["name"]
        self.say(NODES, node, "NodeNotReady", f"Node {name} status is now: NodeNotReady")

    async def _unready_pods(self, node: str) -> None:
        for pod in self.informers.of(PODS).indexed(BY_NODE, node):
            if not pod_facts.ready(pod):
                continue
            before = pod_facts.condition(pod, "Ready") or {}
            condition = {**before, "type": "Ready", "status": "False", "lastTransitionTime": stamp(self.clock.now())}
            try:
                await pod_status.merge(self.client, pod, {"conditions": [condition]})
            except (errors.NotFound, errors.Conflict):
                continue
            self.recorder.warn(about_object(PODS, pod), "NodeNotReady", "Node is not ready")

    # Taints

    async def _set_taints(self, node: Json, state: str) -> None:
        before = node["spec"].get("taints") or []
        wanted: list[tuple[str, str]] = []
        if node["spec"].get("unschedulable"):
            wanted.append((UNSCHEDULABLE, "NoSchedule"))
        trouble = {"Unknown": UNREACHABLE, "False": NOT_READY}.get(state)
        if trouble:
            wanted += [(trouble, "NoSchedule"), *([(trouble, "NoExecute")] if self._ready else [])]
        now = stamp(self.clock.now())
        kept = [each for each in before if each["key"] not in _OURS or (each["key"], each["effect"]) in wanted]
        known = {(each["key"], each["effect"]) for each in kept}
        made = [
            {"key": key, "effect": effect, "timeAdded": now} for key, effect in wanted if (key, effect) not in known
        ]
        if kept + made == before:
            return
        meta = node["metadata"]
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": {"taints": kept + made}}
        try:
            await self.client.patch(NODES, meta["name"], patch)
        except (errors.NotFound, errors.Conflict):
            self.queue.add_after(("", meta["name"]), 0.1)

    async def _evict(self, node: Json) -> float | None:
        """Delete pods that do not tolerate a NoExecute taint, now or after the time they tolerate it."""
        name = node["metadata"]["name"]
        taints = [each for each in node["spec"].get("taints") or () if each["effect"] == "NoExecute"]
        held = {(name, each["key"]) for each in taints}
        for forgotten in [each for each in self._tainted if each[0] == name and each not in held]:
            del self._tainted[forgotten]
        for each in held:
            self._tainted.setdefault(each, self.clock.now())
        waits: list[float] = []
        out_of_service = any(each["key"] == OUT_OF_SERVICE for each in node["spec"].get("taints") or ())
        for pod in self.informers.of(PODS).indexed(BY_NODE, name) if taints or out_of_service else ():
            if out_of_service and deleting(pod):
                await self._remove(pod, grace=0)
                continue
            wait = self._tolerated_for(pod, taints, name)
            if wait is not None and wait <= 0 and not deleting(pod):
                text = f"Marking for deletion Pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
                self.recorder.record(about_object(PODS, pod), "TaintManagerEviction", text)
                await self._remove(pod)
            elif wait is not None and wait > 0:
                waits.append(wait)
        return min(waits, default=None)

    def _tolerated_for(self, pod: Json, taints: list[Json], node: str) -> float | None:
        """Seconds that a pod may stay; None means for ever."""
        tolerations = msgspec.convert(pod["spec"].get("tolerations") or [], list[Toleration], strict=False)
        shortest: float | None = None
        for raw in taints:
            taint = msgspec.convert(raw, Taint, strict=False)
            matching = [each for each in tolerations if tolerated(taint, [each])]
            if not matching:
                return 0.0
            limits = [each.toleration_seconds for each in matching if each.toleration_seconds is not None]
            if limits:
                left = self._tainted[(node, taint.key)] + max(0, min(limits)) - self.clock.now()
                shortest = left if shortest is None else min(shortest, left)
        return shortest

    # Pods without a node

    async def _clear_gone_node(self, name: str) -> float | None:
        left = self.informers.of(PODS).indexed(BY_NODE, name)
        if not left:
            self._tainted.pop((name, ""), None)
            return None
        since = self._tainted.setdefault((name, ""), self.clock.now())
        wait = since + ORPHAN_SECONDS - self.clock.now()
        if wait > 0:
            return wait
        for pod in left:
            await self._remove(pod, grace=0)
        return 0.5

    async def _remove(self, pod: Json, grace: int | None = None) -> None:
        meta = pod["metadata"]
        try:
            await self.client.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], grace=grace)
        except (errors.NotFound, errors.Conflict):
            return


def _ready_state(node: Json) -> str:
    for each in (node.get("status") or {}).get("conditions") or ():
        if each["type"] == "Ready":
            return str(each["status"])
    return ""
