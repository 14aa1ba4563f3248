"""Pods that a kubelet rejected before any of their containers started.

This happens when a node loses its devices after the pod was bound: the agent was restarted, or a GPU failed. The
kubelet does not try such a pod again, and no scheduler may move it. A controller replaces its pod; nobody replaces a
bare pod.
"""

from __future__ import annotations

from apportion.apis import names
from apportion.apis.pods import Pod
from apportion.view.requests import read


def sentence(pod: Pod) -> str:
    """What happened and what to do; empty if no kubelet rejected the pod."""
    status = pod.status
    started = any(entry.container_id for entry in (*status.container_statuses, *status.init_container_statuses))
    if status.phase != "Failed" or not pod.spec.node_name or started or not status.reason or not _asks_for_gpus(pod):
        return ""
    why = f"{status.reason}: {status.message}" if status.message else status.reason
    said = f"The kubelet of node {pod.spec.node_name} rejected the pod ({why}) and does not try again."
    owner = pod.metadata.controller
    if owner is not None:
        return f"{said} {owner.kind} {owner.name} creates a replacement."
    return f"{said} The pod has no controller that replaces it: delete the pod and create it again."


def _asks_for_gpus(pod: Pod) -> bool:
    request, _ = read(pod)
    return request is not None and (
        request.wants_gpu or any(each.startswith(names.NVIDIA_MIG_PREFIX) for each in request.resources)
    )
