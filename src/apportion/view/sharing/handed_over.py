"""A pod that was handed to the binder and is not bound yet: on which node and GPU, for how long, what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from apportion.apis import names, shared_gpus
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.identities import NodeName
from apportion.apis.pods import Pod
from apportion.cluster import clock
from apportion.view.sharing import pod_shares
from apportion.view.sharing.pod_shares import PodShare
from apportion.view.view import View


def age(request: BindRequest, now: float) -> int:
    """In seconds."""
    since = clock.seconds(request.metadata.creation_timestamp or "")
    return max(0, int(now) - since) if since is not None else 0


def sentence(request: BindRequest, shares: Sequence[PodShare], seconds: int, view: View | None) -> str:
    """`shares` are those of the pod; without a `view` nothing is said about reservation pods."""
    spec = request.spec
    gpus = pod_shares.said(shares) or ", ".join(f"GPU {device}" for device in spec.selected_devices)
    parts = [f"The binder has been binding the pod to node {spec.selected_node} for {seconds} s: {gpus}."]
    if view is not None:
        groups = zip(spec.selected_gpu_groups, spec.selected_devices, strict=False)
        parts += [_reservation(view, NodeName(spec.selected_node), *each) for each in groups]
    return " ".join(parts)


def _reservation(view: View, node: NodeName, group: str, planned: str) -> str:
    pod = view.shares.reservation_of(group)
    if pod is None:
        name = f"{view.fleet.reservation_namespace}/{shared_gpus.reservation_name(node, group)}"
        return f"The reservation pod {name} does not exist yet."
    subject = f"The reservation pod {pod.metadata.namespace}/{pod.metadata.name}"
    if pod.metadata.deleting:
        return f"{subject} is being deleted."
    holds = pod.metadata.annotations.get(names.RESERVED_GPU)
    if not holds:
        return f"{subject} has not reported its GPU yet ({_phase(pod)})."
    if shared_gpus.is_slot(planned) or holds == planned:
        return f"{subject} holds GPU {holds}."
    return f"{subject} holds GPU {holds}, and not GPU {planned} as planned."


def _phase(pod: Pod) -> str:
    status = pod.status
    waiting = next((each.state.waiting for each in status.container_statuses if each.state.waiting is not None), None)
    reason = status.reason or (waiting.reason if waiting is not None else "")
    message = status.message or (waiting.message if waiting is not None else "")
    return ": ".join(part for part in (status.phase or "Pending", reason, message) if part)
