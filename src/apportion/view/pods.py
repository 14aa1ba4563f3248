"""Pods in the fleet: bound ones hold what they ask for until their containers have ended, others wait."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from apportion.apis import names
from apportion.apis.identities import NO_NODE, NodeName, PodUID
from apportion.apis.owner_kinds import grouping
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.core.cluster_changes import Happened
from apportion.core.evictions.nominations import reservation_key
from apportion.core.fleet import Fleet
from apportion.core.operations import ObjectKind
from apportion.view.accelerators import Accelerators
from apportion.view.assumptions import Assumptions
from apportion.view.change_log import ChangeLog
from apportion.view.groups.groups import Groups
from apportion.view.requests import ended
from apportion.view.sharing.shares import Shares
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
        groups: Groups,
        shares: Shares,
        objects: dict[PodUID, Pod],
    ) -> None:
        """`objects` are all pods by uid; only this class changes them."""
        self._fleet = fleet
        self._changes = changes
        self._waiting = waiting
        self._accelerators = accelerators
        self._objects = objects
        self._assumptions = assumptions
        self._groups = groups
        self._shares = shares
        self._nominated: dict[PodUID, NodeName] = {}

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, uid: PodUID) -> Pod | None:
        return self._objects.get(uid)

    @property
    def nominated(self) -> Mapping[PodUID, NodeName]:
        """Pods of ours without a node, and the node that their status names: capacity was reserved for them there."""
        return self._nominated

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
            self._status_changed(uid, old, new)
            return
        before = self._changes.position
        self._wish_changed(uid, old, new)
        if subject.metadata.namespace == self._fleet.reservation_namespace:
            self._shares.reservation_changed(subject, gone=new is None or ended(new))
        if self._groups.owners.owns(uid):
            self.read_again(self._groups.owners.forget(uid))
        self._changes.note_display(before)

    def read_again(self, uids: Iterable[PodUID]) -> None:
        """Something that decides about the group of these pods has changed."""
        changed = False
        for uid in uids:
            pod = self._objects.get(uid)
            if pod is not None and self._is_member(pod):
                changed = self._read_again(uid, pod) or changed
        if changed:
            self._changes.note(Happened.QUEUE_CHANGED)

    def _read_again(self, uid: PodUID, pod: Pod) -> bool:
        grouped, changed = self._groups.enter(pod)
        request, problem = grouped.reading
        changed = self._replace(uid, request) or changed
        known = self._waiting.get(uid)
        if known is None:
            return changed
        same = known.reading.request == request and str(known.reading.problem) == str(problem)
        if same and known.held == grouped.held:
            return changed
        self._waiting.add(uid, WaitingPod(pod, *grouped))
        return True

    def _replace(self, uid: PodUID, request: Request | None) -> bool:
        """A pod that has a node, or is assumed to have one, asks for something else."""
        node = self._fleet.pod_nodes.get(uid)
        if node is None or request is None or self._fleet.nodes[node].pods[uid] == request:
            return False
        self._fleet.add_pod(request, node)
        return True

    @staticmethod
    def _is_member(pod: Pod) -> bool:
        return not ended(pod) and (bool(pod.spec.node_name) or not pod.metadata.deleting)

    def _status_changed(self, uid: PodUID, old: Pod, new: Pod) -> None:
        if old.status.start_time != new.status.start_time:
            self._groups.status_changed(new)
        if old.status.nominated_node_name != new.status.nominated_node_name:
            self._nominate(uid, new)
        if (old.status.phase, message_of(old)) != (new.status.phase, message_of(new)):
            self._changes.note(Happened.DISPLAY_CHANGED)

    def _nominate(self, uid: PodUID, pod: Pod) -> None:
        """Without a nomination any more, the reservation still lasts until whoever made it ends it."""
        node = pod.status.nominated_node_name
        waiting = self._waiting.get(uid)
        if not node or waiting is None or pod.spec.scheduler_name not in names.OUR_SCHEDULERS:
            self._nominated.pop(uid, None)
            return
        self._nominated[uid] = node
        request = waiting.reading.request
        if request is None:
            return
        key = reservation_key(request, request.group_key)
        reservation = self._fleet.reservations.get(key)
        if reservation is not None and reservation.node == node:
            self._assumptions.shown(ObjectKind.NOMINATION, key)

    def _wish_changed(self, uid: PodUID, old: Pod | None, new: Pod | None) -> None:
        if new is None or ended(new):
            self._assumptions.shown(ObjectKind.POD, uid)
            self._assumptions.shown(ObjectKind.POD_END, uid)
            self._stop_waiting(uid)
            self._leave(uid)
            self._left_group(uid)
            if new is None:
                self._groups.owners.pod_gone(uid)
        elif new.spec.node_name:
            self._bound(old, new)
        elif new.metadata.deleting:
            self._stop_waiting(uid)
            self._shares.refresh(uid)
            self._left_group(uid)
        else:
            grouped, changed = self._groups.enter(new)
            self._waiting.add(uid, WaitingPod(new, *grouped))
            self._replace(uid, grouped.reading.request)
            self._shares.refresh(uid)
            if new.status.nominated_node_name:
                self._nominate(uid, new)
            self._note_group(changed=changed)

    def _stop_waiting(self, uid: PodUID) -> None:
        self._waiting.remove(uid)
        self._nominated.pop(uid, None)

    def _left_group(self, uid: PodUID) -> None:
        self._note_group(changed=self._groups.leave(uid))

    def _note_group(self, *, changed: bool) -> None:
        if changed:
            self._changes.note(Happened.QUEUE_CHANGED)

    def _bound(self, old: Pod | None, pod: Pod) -> None:
        uid, node = PodUID(pod.metadata.uid), pod.spec.node_name
        assumed = self._assumptions.shown(ObjectKind.POD, uid)
        self._stop_waiting(uid)
        known = self._fleet.pod_nodes.get(uid)
        if assumed and known == node and old is not None and self._only_bound(old, pod):
            self._changes.note(Happened.POD_CAME, node, uid)  # as assumed: the fleet has it already
            if self._fleet.nodes[node].pods[uid].whole_gpus:
                self._accelerators.assign_devices(node)
            self._shares.refresh(uid)
            return
        grouped, changed = self._groups.enter(pod)
        self._note_group(changed=changed)
        request, problem = grouped.reading
        if request is None:
            log.error("ignoring pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, problem)
            self._leave(uid)
            return
        if known == node and self._fleet.nodes[node].pods[uid] == request:
            self._shares.refresh(uid)
            return
        self._fleet.add_pod(request, node)
        self._shares.refresh(uid)
        if request.whole_gpus:
            self._accelerators.assign_devices(node)
        if known is not None and known != node:
            self._changes.note(Happened.POD_GONE, known, uid)
        self._changes.note(Happened.POD_CAME, node, uid)

    def _only_bound(self, old: Pod, new: Pod) -> bool:
        """Nothing but the node was added, and the name of its group, which comes with the binding."""
        return (
            msgspec.structs.replace(new.spec, node_name=NO_NODE) == old.spec
            and old.metadata.labels == new.metadata.labels
            and (old.metadata.annotations == new.metadata.annotations or self._only_named(old, new))
            and old.metadata.owner_references == new.metadata.owner_references
            and old.status.start_time == new.status.start_time
        )

    def _only_named(self, old: Pod, new: Pod) -> bool:
        request = self._fleet.nodes[new.spec.node_name].pods[new.uid]
        name = request.group or grouping.single_group_name(request.name, request.uid)
        before, after = old.metadata.annotations, new.metadata.annotations
        named = names.POD_GROUP not in before and {**before, names.POD_GROUP: name} == after
        return named and not self._groups.is_of_user(request.group_key)

    def _leave(self, uid: PodUID) -> None:
        node = self._fleet.pod_nodes.get(uid)
        if self._fleet.holds(uid):
            self._shares.ended(uid)
        if node is not None:
            held_gpus = self._fleet.nodes[node].pods[uid].whole_gpus
            self._fleet.remove_pod(uid)
            if held_gpus:
                self._accelerators.assign_devices(node)
            self._changes.note(Happened.POD_GONE, node, uid)


def message_of(pod: Pod) -> str:
    """What the condition PodScheduled says."""
    return next((entry.message for entry in pod.status.conditions if entry.type == SCHEDULED), "")


def _same_wish(old: Pod, new: Pod) -> bool:
    """Only the pod's state was reported again, nothing that a decision rests on."""
    return (
        old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.metadata.owner_references == new.metadata.owner_references
        and old.metadata.deleting == new.metadata.deleting
        and ended(old) == ended(new)
    )
