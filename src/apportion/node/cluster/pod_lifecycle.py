"""When has a container ended for good? Decided only from its pod in the API.

A slice is kept as long as one of its containers may run again. A restart in place keeps it; a container
that ended and will never be started again releases it, also while its pod keeps running.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from apportion.apis.identities import NodeName, PodUID
from apportion.apis.pods import Container, ContainerStatus, Pod


class PodPhase(enum.Enum):
    """A pod, seen from this node."""

    unbound = "waits to be bound"
    live = "runs here, or will"
    ended = "has ended"
    elsewhere = "is bound to another node"
    gone = "is gone"


@dataclass(frozen=True)
class PodLifecycle:
    """What the API says of a pod. `ended` names containers that are over, with their runtime ids."""

    state: PodPhase
    ended: dict[str, str] = field(default_factory=dict)
    refusal: str = ""

    @property
    def over(self) -> bool:
        """Nothing of the pod will be started on this node again."""
        return self.state in (PodPhase.ended, PodPhase.elsewhere, PodPhase.gone)

    def over_for(self, containers: Iterable[str]) -> bool:
        wanted = set(containers)
        return self.over or (bool(wanted) and wanted <= self.ended.keys())


GONE = PodLifecycle(PodPhase.gone)


def of(pod: Pod | None, uid: PodUID, node: NodeName) -> PodLifecycle:
    """`pod` is what is found under the pod's name; one of another uid is a successor."""
    if pod is None or pod.metadata.uid != uid:
        return GONE
    if not pod.spec.node_name:
        return PodLifecycle(PodPhase.ended if pod.terminal else PodPhase.unbound)
    if pod.spec.node_name != node:
        return PodLifecycle(PodPhase.elsewhere)
    if pod.terminal:
        return PodLifecycle(PodPhase.ended, refusal=_refusal(pod))
    return PodLifecycle(PodPhase.live, ended=_ended(pod))


def _refusal(pod: Pod) -> str:
    """Why the kubelet did not even start the pod, if that is so."""
    status = pod.status
    started = any(entry.container_id for entry in (*status.container_statuses, *status.init_container_statuses))
    if status.phase != "Failed" or started or not status.reason:
        return ""
    return f"{status.reason}: {status.message}" if status.message else status.reason


def _ended(pod: Pod) -> dict[str, str]:
    init = {container.name for container in pod.spec.init_containers}
    specs = {container.name: container for container in (*pod.spec.init_containers, *pod.spec.containers)}
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return {
        status.name: _runtime_id(status)
        for status in statuses
        if status.name in specs
        and _over(pod.spec.restart_policy, specs[status.name], status, first=status.name in init)
    }


def _over(policy: str, container: Container, status: ContainerStatus, *, first: bool) -> bool:
    terminated = status.state.terminated
    if terminated is None or container.restart_policy is not None:
        return False
    if policy == "Never":
        return True
    # With other policies a new sandbox runs the init containers again.
    return not first and policy == "OnFailure" and terminated.exit_code == 0


def _runtime_id(status: ContainerStatus) -> str:
    terminated = status.state.terminated
    text = (terminated.container_id if terminated else "") or status.container_id
    return text.rpartition("://")[2]
