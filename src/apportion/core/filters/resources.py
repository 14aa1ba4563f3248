"""Does what the pod asks for fit into what its node has left?"""

from __future__ import annotations

from apportion.apis import names
from apportion.apis.request import Request
from apportion.core.node import PODS, NodeState
from apportion.core.reasons import Code, Reason


def against(node: NodeState, request: Request) -> Reason | None:
    """Everything except the resources that the GPU rules check with their own numbers."""
    if node.free(PODS) < 1:
        return Reason(Code.PODS, PODS, 1, node.free(PODS), _total(node, PODS))
    for resource, need in request.resources.items():
        if not told_by_gpus(resource, request):
            reason = short_of(node, resource, need)
            if reason is not None:
                return reason
    return None


def against_gpu_resources(node: NodeState, request: Request) -> Reason | None:
    """The rest: what the node's kubelet must have on offer for the GPU request."""
    for resource, need in request.resources.items():
        if told_by_gpus(resource, request):
            reason = short_of(node, resource, need)
            if reason is not None:
                return reason
    return None


def told_by_gpus(resource: str, request: Request) -> bool:
    if request.slices:
        return resource.startswith(names.SLICE_PREFIX) or resource == names.GPU_MEMORY
    return resource == names.NVIDIA_GPU and request.whole_gpus > 0


def short_of(node: NodeState, resource: str, need: int) -> Reason | None:
    free = node.free(resource)
    if need <= free:
        return None
    return Reason(Code.RESOURCE, resource, need, free, _total(node, resource))


def _total(node: NodeState, resource: str) -> int:
    return node.facts.allocatable.get(resource, 0) if node.facts else 0
