"""Pods that ask for slices under NVIDIA's names and were never changed by the webhook.

They were created while the webhook was removed. No node offers such a resource where slices are created on demand, so
their scheduler waits for ever; a pod's resources cannot be changed afterwards.
"""

from __future__ import annotations

from apportion.apis import names, profiles
from apportion.apis.pods import Pod
from apportion.view.requests import read
from apportion.view.view import View


def possible(pod: Pod) -> bool:
    """The pod waits, and asks for slices under NVIDIA's names."""
    if pod.spec.node_name or pod.terminal or pod.metadata.deleting:
        return False
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return any(
        name.startswith(names.NVIDIA_MIG_PREFIX)
        for container in containers
        for name in (*container.resources.limits, *container.resources.requests)
    )


def sentence(view: View, pod: Pod) -> str:
    """What to do; empty if the pod was admitted as it should be, or if no GPU offers what it asks for."""
    request, _ = read(pod)
    if request is None:
        return ""
    for resource in request.resources:
        profile = profiles.nvidia_profile(resource)
        if profile is not None and not _static(view, resource) and _dynamic(view, profile):
            return (
                f"No node offers {resource}: in this cluster slices are created on demand, and the pod was created "
                f"without the admission webhook, which requests {profiles.slice_resource(profile)} instead. "
                "Delete the pod and create it again."
            )
    return ""


def _static(view: View, resource: str) -> bool:
    return any(node.facts is not None and node.facts.allocatable.get(resource, 0) > 0 for node in view.fleet)


def _dynamic(view: View, profile: str) -> bool:
    grids = {gpu.grid for node in view.fleet for gpu in node.gpus.values() if gpu.facts.mig}
    return any(shape.name == profile for grid in grids for shape in grid.ordered)
