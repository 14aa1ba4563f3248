"""Pods in the fleet: bound ones hold what they ask for until their containers have ended, others wait."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec

from apportion.apis import names
from apportion.apis.identities import NO_NODE, PodUID
from apportion.apis.pods import Pod
from apportion.core.cluster_changes import Happened
from apportion.core.fleet import Fleet
from apportion.core.operations import ObjectKind
from apportion.view.accelerators import Accelerators
from apportion.view.assumptions import Assumptions
from apportion.view.change_log import ChangeLog
from apportion.view.requests import ended, read
from apportion.view.waiting import WaitingPod, WaitingPods

log = logging.getLogger(__name__)

SCHEDULED = "PodScheduled"


class Pods:
    """Feeds pods into the fleet, and knows them by uid."""

    def __init__(
        self,
        fleet: Fleet,
        changes: ChangeLog,
        waiting: WaitingPods,
        accelerators: Accelerators,
        assumptions: Assumptions,
    ) -> None:
        self._fleet = fleet
        self._changes = changes
        self._waiting = waiting
        self._accelerators = accelerators
        self._objects: dict[PodUID, Pod] = {}
        self._assumptions = assumptions

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, uid: PodUID) -> Pod | None:
        return self._objects.get(uid)

    def condition_message(self, uid: PodUID) -> str:
        """What the pod's condition PodScheduled says."""
        pod = self._objects.get(uid)
        return message_of(pod) if pod is not None else ""

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        assert subject is not None
        uid = PodUID(subject.metadata.uid)
        if new is None:
            self._objects.pop(uid, None)
        else:
            self._objects[uid] = new
        if subject.metadata.labels.get(names.APP_LABEL) == names.AGENT_APP:
            self._accelerators.agent_changed(subject, new)
        if old is not None and new is not None and _same_wish(old, new):
            if (old.status.phase, message_of(old)) != (new.status.phase, message_of(new)):
                self._changes.note(Happened.DISPLAY_CHANGED)
            return
        before = self._changes.position
        self._wish_changed(uid, old, new)
        self._changes.note_display(before)

    def _wish_changed(self, uid: PodUID, old: Pod | None, new: Pod | None) -> None:
        if new is None or ended(new):
            self._assumptions.shown(ObjectKind.POD, uid)
            self._assumptions.shown(ObjectKind.POD_END, uid)
            self._waiting.remove(uid)
            self._leave(uid)
        elif new.spec.node_name:
            self._bound(old, new)
        elif new.metadata.deleting:
            self._waiting.remove(uid)
        else:
            self._waiting.add(uid, WaitingPod(new, read(new)))

    def _bound(self, old: Pod | None, pod: Pod) -> None:
        uid, node = PodUID(pod.metadata.uid), pod.spec.node_name
        assumed = self._assumptions.shown(ObjectKind.POD, uid)
        self._waiting.remove(uid)
        known = self._fleet.pod_nodes.get(uid)
        if assumed and known == node and old is not None and _only_bound(old, pod):
            self._changes.note(Happened.POD_CAME, node, uid)  # as assumed: the fleet has it already
            if self._fleet.nodes[node].pods[uid].whole_gpus:
                self._accelerators.assign_devices(node)
            return
        request, problem = read(pod)
        if request is None:
            log.error("ignoring pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, problem)
            self._leave(uid)
            return
        if known == node and self._fleet.nodes[node].pods[uid] == request:
            return
        self._fleet.add_pod(request, node)
        if request.whole_gpus:
            self._accelerators.assign_devices(node)
        if known is not None and known != node:
            self._changes.note(Happened.POD_GONE, known, uid)
        self._changes.note(Happened.POD_CAME, node, uid)

    def _leave(self, uid: PodUID) -> None:
        node = self._fleet.pod_nodes.get(uid)
        if node is not None:
            held_gpus = self._fleet.nodes[node].pods[uid].whole_gpus
            self._fleet.remove_pod(uid)
            if held_gpus:
                self._accelerators.assign_devices(node)
            self._changes.note(Happened.POD_GONE, node, uid)


def message_of(pod: Pod) -> str:
    """What the condition PodScheduled says."""
    return next((entry.message for entry in pod.status.conditions if entry.type == SCHEDULED), "")


def _only_bound(old: Pod, new: Pod) -> bool:
    """Nothing but the node was added."""
    return (
        msgspec.structs.replace(new.spec, node_name=NO_NODE) == old.spec
        and old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
    )


def _same_wish(old: Pod, new: Pod) -> bool:
    """Only the pod's state was reported again, nothing that a decision rests on."""
    return (
        old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.metadata.deleting == new.metadata.deleting
        and ended(old) == ended(new)
    )
