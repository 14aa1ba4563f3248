"""A pod that was handed to the binder and is not bound yet: on which node and GPU, for how long, what is missing.

Binding takes a second or two, longer only if a reservation pod starts slowly or the binder has many pods to bind. After
a while without progress the pod is told what it waits for, by the scheduler and by `why` in the same words.
"""

from __future__ import annotations

from collections.abc import Sequence

from apportion.apis import names, shared_gpus
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.identities import NodeName
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.cluster import clock
from apportion.core import refusals
from apportion.core.explanations import messages
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from apportion.view.pods import message_of
from apportion.view.sharing import pod_shares
from apportion.view.sharing.binder_state import BinderState
from apportion.view.sharing.pod_shares import PodShare
from apportion.view.view import View

NO_PROGRESS_SECONDS = 15  # by then a standby has taken over from a binder that died
LONGEST_SECONDS = 60  # though the binder is busy with others: it waits 40 s for a reservation pod


def age(request: BindRequest, now: float) -> int:
    """In seconds."""
    since = clock.seconds(request.metadata.creation_timestamp or "")
    return max(0, int(now) - since) if since is not None else 0


def sentence(
    request: BindRequest, shares: Sequence[PodShare], seconds: int, view: View | None, binder: BinderState
) -> str:
    """`shares` are those of the pod; without a `view` nothing is said about reservation pods."""
    spec = request.spec
    gpus = pod_shares.said(shares) or ", ".join(f"GPU {device}" for device in spec.selected_devices)
    parts = [f"The pod has been waiting for the binder for {seconds} s, for node {spec.selected_node}: {gpus}."]
    if view is not None:
        groups = zip(spec.selected_gpu_groups, spec.selected_devices, strict=False)
        parts += [_reservation(view, NodeName(spec.selected_node), *each) for each in groups]
    if binder.leads is False:
        parts.append(f"There is no leading binder: {binder.check}.")
    return " ".join(parts)


def is_overdue(request: BindRequest, pod: Pod, seconds: int, view: View | None, binder: BinderState) -> bool:
    """As far as a reader can say who has not followed the request. A binder that leads may be busy with others, unless
    the scheduler has told the pod that nothing happens."""
    if seconds <= NO_PROGRESS_SECONDS:
        return False
    stuck = view is not None and waits_for(view, request) is not None
    return stuck or seconds > LONGEST_SECONDS or not binder.leads or bool(told(pod))


def told(pod: Pod) -> str:
    """What the condition of the pod says about that; empty if it is about something else."""
    text = message_of(pod)
    return text if messages.gives(text, Code.BINDING_OVERDUE) else ""


def overdue(
    asked: Request, request: BindRequest, view: View | None, binder: BinderState, seconds: int = NO_PROGRESS_SECONDS
) -> Refusal:
    """What the pod waits for, and where to look."""
    pod = waits_for(view, request) if view is not None else None
    if pod is None:
        why = f"no binder has carried out its BindRequest for node {request.spec.selected_node}; {binder.check}"
    else:
        meta = pod.metadata
        why = (
            f"the reservation pod {meta.namespace}/{meta.name} on node {request.spec.selected_node} "
            f"{_without_gpu(pod)}; check `kubectl describe pod -n {meta.namespace} {meta.name}`"
        )
    return refusals.of_pod(asked, Code.BINDING_OVERDUE, why, seconds)


def waits_for(view: View, request: BindRequest) -> Pod | None:
    """A reservation pod that has no GPU yet, or is being deleted."""
    found = (view.shares.reservation_of(group) for group in request.spec.selected_gpu_groups)
    return next((pod for pod in found if pod is not None and _without_gpu(pod)), None)


def _reservation(view: View, node: NodeName, group: str, planned: str) -> str:
    pod = view.shares.reservation_of(group)
    if pod is None:
        name = f"{view.fleet.reservation_namespace}/{shared_gpus.reservation_name(node, group)}"
        return f"The reservation pod {name} does not exist yet."
    subject = f"The reservation pod {pod.metadata.namespace}/{pod.metadata.name}"
    missing = _without_gpu(pod)
    if missing:
        return f"{subject} {missing}."
    holds = pod.metadata.annotations[names.RESERVED_GPU]
    if shared_gpus.is_slot(planned) or holds == planned:
        return f"{subject} holds GPU {holds}."
    return f"{subject} holds GPU {holds}, and not GPU {planned} as planned."


def _without_gpu(pod: Pod) -> str:
    """Why no pod can share the GPU of a reservation pod yet; empty if one can."""
    if pod.metadata.deleting:
        return "is being deleted"
    return "" if pod.metadata.annotations.get(names.RESERVED_GPU) else f"has not reported its GPU yet ({_phase(pod)})"


def _phase(pod: Pod) -> str:
    status = pod.status
    waiting = next((each.state.waiting for each in status.container_statuses if each.state.waiting is not None), None)
    reason = status.reason or (waiting.reason if waiting is not None else "")
    message = status.message or (waiting.message if waiting is not None else "")
    return ": ".join(part for part in (status.phase or "Pending", reason, message) if part)
