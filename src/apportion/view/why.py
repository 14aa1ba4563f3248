"""Why does this pod wait? The scheduler's own answer, on what it sees right now.

Nothing is written and nothing is assumed: the same decision is made on a fleet of our own, so the sentence is
the one that the scheduler puts into the pod's event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from apportion.apis import names
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.identities import NO_NODE, NodeName, PodUID
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.core import group_decision
from apportion.core.explanations import messages
from apportion.core.groups import Group
from apportion.core.policies import Policy
from apportion.core.reasons import Layer
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from apportion.view.pods import message_of
from apportion.view.requests import read
from apportion.view.view import View


class PodState(StrEnum):
    """How far a pod has come."""

    WAITING = "waiting"  # no node can take it now
    FITS = "fits"  # a node can take it: the scheduler has not got to it yet, or none leads
    GATED = "gated"
    INVALID = "invalid"  # it asks for something that can never be right
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
    refusal: Refusal | None = None
    told: str = ""


def answer(view: View, pod: Pod, policy: Policy) -> Answer:
    """What keeps this pod from running, as the cluster is now."""
    key = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if pod.terminal:
        return Answer(key, PodState.ENDED, f"The pod has terminated ({pod.status.phase}).", node=pod.spec.node_name)
    if pod.spec.node_name:
        return _placed(key, pod, tuple(view.claims.of_pod(PodUID(pod.metadata.uid))))
    return replace(_waiting(view, key, pod, policy), told=message_of(pod))


def _waiting(view: View, key: str, pod: Pod, policy: Policy) -> Answer:
    if pod.metadata.deleting:
        return Answer(key, PodState.LEAVING, "The pod is being deleted and will not be scheduled.")
    if pod.spec.scheduler_name not in names.OUR_SCHEDULERS:
        sentence = f"The pod belongs to the scheduler {pod.spec.scheduler_name!r}, not to Apportion."
        return Answer(key, PodState.FOREIGN, sentence)
    request, problem = read(pod)
    if request is None or problem is not None:
        return Answer(key, PodState.INVALID, f"Cannot be scheduled: {problem}", Layer.ADMISSION)
    outcome = _decided(view, request, policy)
    if isinstance(outcome, Statement):
        return Answer(key, PodState.FITS, f"Node {outcome.node} is available for the pod.", node=outcome.node)
    state = PodState.GATED if request.gated else PodState.WAITING
    return Answer(key, state, messages.of(outcome), outcome.layer, refusal=outcome)


def _placed(key: str, pod: Pod, slices: tuple[AllocationClaim, ...]) -> Answer:
    node = pod.spec.node_name
    if pod.status.phase == "Running":
        return Answer(key, PodState.RUNNING, f"The pod is running on node {node}.", node=node, slices=slices)
    sentence = f"The pod is bound to node {node}; its containers have not started yet."
    return Answer(key, PodState.PLACED, sentence, node=node, slices=slices)


def _decided(view: View, request: Request, policy: Policy) -> Statement | Refusal:
    """The scheduler's decision, taken back at once."""
    mark = view.fleet.checkpoint()
    try:
        return group_decision.decide(view.fleet, Group.of(request), policy)
    finally:
        view.fleet.rollback(mark)
