"""Why does this pod wait? The scheduler's own answer, on what it sees right now.

Nothing is written and nothing is assumed: the same decision is made on a fleet of our own, so the sentence is
the one that the scheduler puts into the pod's event. A reader who may not see the whole cluster gets that event itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from apportion.apis import names
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import NO_NODE, NodeName, PodUID
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.core import gangs, group_decision, group_turns, refusals
from apportion.core.evictions import nominations, room, successor_places
from apportion.core.evictions.room import Consolidation
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.evictions.successor_places import KeptPlace
from apportion.core.explanations import explanation, messages
from apportion.core.explanations.queue_advice import QueueAdvice
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.policies import Policy
from apportion.core.reasons import Code, Layer
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from apportion.view import not_admitted, queue_scene, rejections
from apportion.view.pods import message_of
from apportion.view.requests import Reading, read
from apportion.view.sharing import handed_over, pod_shares
from apportion.view.sharing.binder_state import BinderState
from apportion.view.sharing.pod_shares import PodShare
from apportion.view.view import View

NOT_READ = BinderState()


class PodState(StrEnum):
    """How far a pod has come."""

    WAITING = "waiting"  # no node can take it now
    FITS = "fits"  # a node can take it: the scheduler has not got to it yet, or none leads
    GATED = "gated"
    INVALID = "invalid"  # it asks for something that can never be right
    BINDING = "binding"  # it has a share, and the binder is to bind it
    PLACED = "placed"  # it has a node, its containers do not run yet
    RUNNING = "running"
    ENDED = "ended"
    LEAVING = "leaving"
    FOREIGN = "foreign"  # another scheduler's business


@dataclass(frozen=True)
class Answer:
    """`sentence` is the complete answer; `told` is the message of the pod's condition, written by the scheduler."""

    pod: str
    state: PodState
    sentence: str
    layer: str = ""
    node: NodeName = NO_NODE
    slices: tuple[AllocationClaim, ...] = ()
    shares: tuple[PodShare, ...] = ()
    refusal: Refusal | None = None
    told: str = ""
    seconds: int = 0  # for which it has been waiting for the binder
    note: str = ""  # what the reader may not see


def answer(
    view: View,
    pod: Pod,
    policy: Policy,
    consolidation: Consolidation = Consolidation.GPUS,
    kept: Iterable[KeptPlace] = (),
    binder: BinderState = NOT_READ,
) -> Answer:
    """What keeps this pod from running, as the cluster is now. `policy` and `consolidation` are those of the scheduler,
    `kept` are places that it keeps for the successors of pods that it moved."""
    key = f"{pod.metadata.namespace}/{pod.metadata.name}"
    reading = view.groups.read(pod).reading
    shares = pod_shares.of_pod(view, pod)
    known = _from_pod(key, pod, reading, tuple(view.claims.of_pod(pod.uid)), shares)
    if known is not None and known.state is PodState.FOREIGN:
        never_admitted = not_admitted.sentence(view, pod)
        if never_admitted:
            known = replace(known, sentence=never_admitted, layer=Layer.ADMISSION)
    asked = view.shares.request_of(pod.uid)
    if known is None and asked is not None:
        known = _binding(key, pod, reading, asked, shares, view, binder)
    if known is None:
        assert reading.request is not None
        outcome = _decided(view, reading.request, policy, consolidation, kept)
        known = _explained(key, pod, reading.request, outcome, view.shares.failed_request_of(pod.uid))
    return replace(known, told="" if pod.spec.node_name else message_of(pod))


def reported(
    pod: Pod, event: str, note: str, asked: BindRequest | None = None, binder: BinderState = NOT_READ
) -> Answer:
    """The answer for a reader who sees only the pod, its newest event about scheduling (empty: none), and its request
    to the binder."""
    key = f"{pod.metadata.namespace}/{pod.metadata.name}"
    reading = read(pod)
    known = _from_pod(key, pod, reading, (), pod_shares.written_on(pod))
    if known is None and asked is not None:
        known = _binding(key, pod, reading, asked, (), None, binder)
    if known is not None:
        return replace(known, sentence=_with_event(known, event), note=note)
    said = message_of(pod) or event
    state = PodState.GATED if pod.spec.scheduling_gates else PodState.WAITING
    return Answer(key, state, said or "The scheduler has not reported a reason yet.", told=message_of(pod), note=note)


def _with_event(known: Answer, event: str) -> str:
    return f"{known.sentence} {event}".strip() if known.state is PodState.FOREIGN else known.sentence


def _from_pod(
    key: str, pod: Pod, reading: Reading, slices: tuple[AllocationClaim, ...], shares: tuple[PodShare, ...]
) -> Answer | None:
    """What the pod alone tells; None if its scheduler has to decide."""
    if pod.terminal:
        sentence = rejections.sentence(pod) or f"The pod has terminated ({pod.status.phase})."
        return Answer(key, PodState.ENDED, sentence, node=pod.spec.node_name)
    if pod.spec.node_name:
        return _placed(key, pod, slices, shares)
    if pod.metadata.deleting:
        return Answer(key, PodState.LEAVING, "The pod is being deleted and will not be scheduled.")
    if pod.spec.scheduler_name not in names.OUR_SCHEDULERS:
        sentence = f"The pod belongs to the scheduler {pod.spec.scheduler_name!r}, not to Apportion."
        return Answer(key, PodState.FOREIGN, sentence)
    request, problem = reading
    if request is None or problem is not None:
        invalid = refusals.of_pod(request or _unread(pod), Code.INVALID, str(problem))
        return Answer(key, PodState.INVALID, messages.of(invalid), invalid.layer)
    return None


def _binding(
    key: str,
    pod: Pod,
    reading: Reading,
    asked: BindRequest,
    shares: tuple[PodShare, ...],
    view: View | None,
    binder: BinderState,
) -> Answer:
    seconds, node = handed_over.age(asked, time.time()), NodeName(asked.spec.selected_node)
    if not handed_over.is_overdue(asked, pod, seconds, view, binder):
        sentence = handed_over.sentence(asked, shares, seconds, view, binder)
        return Answer(key, PodState.BINDING, sentence, node=node, shares=shares, seconds=seconds)
    assert reading.request is not None
    refusal = handed_over.overdue(reading.request, asked, view, binder)
    sentence = messages.of(refusal)
    if view is None:  # the scheduler sees the reservation pods
        sentence = handed_over.told(pod) or sentence
    return Answer(key, PodState.BINDING, sentence, refusal.layer, node, (), shares, refusal, seconds=seconds)


def _explained(
    key: str, pod: Pod, request: Request, outcome: Statement | Refusal, failed: BindRequest | None
) -> Answer:
    if isinstance(outcome, Statement) and failed is not None:  # and the scheduler has not decided again yet
        refusal = refusals.of_pod(request, Code.BINDING_FAILED, failed.status.reason)
        return Answer(key, PodState.WAITING, messages.of(refusal), refusal.layer)
    attempt = messages.attempt_in(message_of(pod)) if isinstance(outcome, Statement) else None
    if attempt is not None:  # the place is there, and only the scheduler knows why it could not be given
        return Answer(key, PodState.WAITING, message_of(pod), attempt.row.layer)
    if isinstance(outcome, Statement):
        node = next(bind.node for bind in outcome.binds if bind.uid == request.uid)
        return Answer(key, PodState.FITS, f"Node {node} is available for the pod.", node=node)
    state = PodState.GATED if request.gated else PodState.WAITING
    return Answer(key, state, messages.of(outcome), outcome.layer, refusal=outcome)


def _unread(pod: Pod) -> Request:
    """A pod of which nothing but its name can be read."""
    meta = pod.metadata
    return Request(uid=PodUID(meta.uid), namespace=meta.namespace, name=meta.name)


def _placed(key: str, pod: Pod, slices: tuple[AllocationClaim, ...], shares: tuple[PodShare, ...]) -> Answer:
    node = pod.spec.node_name
    where = f"node {node} with {pod_shares.said(shares)}" if shares else f"node {node}"
    if pod.status.phase == "Running":
        return Answer(key, PodState.RUNNING, f"The pod is running on {where}.", node=node, slices=slices, shares=shares)
    sentence = f"The pod is bound to {where}; its containers have not started yet."
    return Answer(key, PodState.PLACED, sentence, node=node, slices=slices, shares=shares)


def _decided(
    view: View, request: Request, policy: Policy, consolidation: Consolidation, kept: Iterable[KeptPlace]
) -> Statement | Refusal:
    """The scheduler's decision, taken back at once."""
    mark = view.fleet.checkpoint()
    try:
        successor_places.keep_again(view.fleet, kept)
        _reserve_nominated(view, policy)
        return _with_queues(view, request, policy, consolidation)
    finally:
        view.fleet.rollback(mark)


def _reserve_nominated(view: View, policy: Policy) -> None:
    """Places for which others were evicted are written down as nominated nodes."""
    for request, node in view.waiting.nominated():
        reservation = nominations.reserve_again(view.fleet, request, node, policy)
        if reservation is not None:
            view.fleet.reserve(reservation)


def _with_queues(view: View, request: Request, policy: Policy, consolidation: Consolidation) -> Statement | Refusal:
    fleet = view.fleet
    group = Group.of(request, key=request.group_key)
    if request.gated or view.queues.hidden:
        return group_decision.decide(fleet, group, policy)
    turn = group_turns.next_turn(fleet, _waiting_with(view, request))
    if isinstance(turn, Refusal):
        return turn
    entitled = queue_scene.entitlements(view)
    advice = QueueAdvice(fleet, policy, entitled, lambda: RunningGroups(fleet, int(time.time())), consolidation)
    stopped = group_turns.stopped(fleet, turn)
    if stopped is not None:
        planned = advice.planned(turn.group) if stopped.code in room.CAN_HELP else None
        return planned or explanation.worked_out(advice.stopped(turn.group)) or stopped
    if request.uid in turn.group.uids:
        group = turn.group
    mark = fleet.checkpoint()
    outcome = group_decision.decide(fleet, group, policy)
    fleet.rollback(mark)
    if isinstance(outcome, Statement) or outcome.detail:
        return outcome
    awaited = _awaited(fleet, group)
    return awaited or advice.planned(group) or explanation.worked_out(advice.without_place(group, outcome))


def _awaited(fleet: Fleet, group: Group) -> Refusal | None:
    """Pods that were evicted for the group, and still hold its places."""
    kept = fleet.reservations_for(group.key)
    leaving = {uid for each in kept for uid in each.after if uid in fleet.pod_nodes}
    nodes = ", ".join(sorted({each.node for each in kept}))
    return refusals.of_pod(group.members[0], Code.MAKING_ROOM, nodes, len(leaving)) if leaving else None


def _waiting_with(view: View, request: Request) -> list[Request]:
    """The pods of its group that wait to be placed, itself included, the oldest first."""
    found = {request.uid: request}
    for uid in view.groups.members.of(request.group_key):
        waiting = view.waiting.get(uid) if uid not in view.fleet.pod_nodes else None
        other = waiting.reading.request if waiting is not None and waiting.reading.problem is None else None
        if other is not None and not other.gated:
            found.setdefault(uid, other)
    return sorted(found.values(), key=gangs.age)
