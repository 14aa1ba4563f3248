"""BindRequest: the scheduler hands a pod that shares a GPU over to the binder. Design, section 3."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from apportion.apis import names
from apportion.apis.identities import NodeName
from apportion.apis.meta import Conditions, ObjectMeta, Wire

FAILED = "Failed"


class ReceivedGpu(Wire):
    count: Annotated[int, Meta(ge=0, description="Number of devices.")] = 1
    portion: Annotated[str, Meta(description="Share of each device, as a decimal number.")] = ""
    memory_mib: Annotated[int, Meta(ge=0, description="The same in MiB.")] = msgspec.field(default=0, name="memoryMiB")


class BindRequestSpec(Wire, kw_only=True):
    pod_name: Annotated[str, Meta(min_length=1)]
    pod_uid: Annotated[str, Meta(description="UID of the pod; the binder rejects a pod with another UID.")] = (
        msgspec.field(default="", name="podUID")
    )
    selected_node: Annotated[str, Meta(min_length=1)]
    selected_gpu_groups: Annotated[
        list[str], Meta(description="The shared GPUs, by the group label of their reservation pods.")
    ] = msgspec.field(default_factory=list, name="selectedGPUGroups")
    selected_devices: Annotated[
        list[str], Meta(description="The GPU that the scheduler expects for each group, in the same order.")
    ] = []
    received_resource_type: str = ""
    received_gpu: ReceivedGpu | None = msgspec.field(default=None, name="receivedGPU")
    backoff_limit: Annotated[int, Meta(ge=0)] = 0


class BindRequestStatus(Wire):
    phase: Annotated[
        str, Meta(description="Failed: the pod was not bound, reason says why. A request that succeeds is not changed.")
    ] = ""
    reason: str = ""
    failed_attempts: int = 0
    conditions: Conditions = []


class BindRequest(Wire, kw_only=True):
    """A request to bind a pod to a shared GPU."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: BindRequestSpec
    status: BindRequestStatus = msgspec.field(default_factory=BindRequestStatus)

    @property
    def failed(self) -> bool:
        return self.status.phase == FAILED

    @property
    def failed_nodes(self) -> tuple[NodeName, ...]:
        """Where the pod could not be bound, the latest one last: by earlier requests, and by this one if it failed."""
        earlier = self.metadata.annotations.get(names.FAILED_NODES, "")
        latest = [self.spec.selected_node] if self.failed else []
        nodes = [node for node in earlier.split(",") if node and node not in latest]
        return tuple(NodeName(node) for node in (*nodes, *latest))
