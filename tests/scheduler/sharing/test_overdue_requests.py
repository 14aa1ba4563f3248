"""A pod with a share whose BindRequest nobody carries out is told so, and what to check."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from apportion.apis import kinds, names, shared_gpus
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.installation import Installation
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.cli import why as why_command
from apportion.cluster.transport import HttpRequest
from apportion.scheduler.events import Reporter
from apportion.scheduler.sharing.overdue_requests import OverdueRequests
from apportion.view.sharing.binder_state import BinderState
from apportion.view.sharing.handed_over import LONGEST_SECONDS
from tests.builders import pods
from tests.scheduler.cluster import ApiCluster, scheduling, until
from tests.scheduler.sharing.test_shares import bind, requested, share, shared_node, sharing
from tests.view.sharing.sharing_world import SharingWorld

__all__ = ["sharing"]

PATIENCE = 1.0
OWN = Installation(sharing_namespace="own-sharing")
NO_BINDER = (
    "Cannot be scheduled now: the pod has a place, but has not been bound for more than 1 s: no binder has carried "
    "out its BindRequest for node n1; check `kubectl get pods -n own-sharing -l app=binder`."
)


async def condition(cluster: ApiCluster, name: str) -> tuple[str, str]:
    found = [each for each in (await cluster.get(name)).status.conditions if each.type == "PodScheduled"]
    return (found[0].status, found[0].message) if found else ("", "")


async def events(cluster: ApiCluster, name: str) -> list[str]:
    uid = (await cluster.get(name)).uid
    listing = await cluster.client.list(kinds.EVENTS, namespace="default", fields=f"involvedObject.uid={uid}")
    return [event["message"] for event in listing.items if event["reason"] == "FailedScheduling"]


async def reservation(cluster: ApiCluster, request: BindRequest) -> str:
    """What a binder does before it is stopped: the reservation pod is there, and does not start."""
    spec = request.spec
    name = shared_gpus.reservation_name(spec.selected_node, spec.selected_gpu_groups[0])
    for kind, namespace in ((kinds.NAMESPACES, None), (kinds.SERVICE_ACCOUNTS, names.RESERVATION_NAMESPACE)):
        made = names.RESERVATION_NAMESPACE if namespace is None else "default"
        body = {"metadata": {"name": made} | ({"namespace": namespace} if namespace else {})}
        await cluster.client.apply(kind, body, field_manager="test")
    labels = {names.GPU_GROUP_LABEL: spec.selected_gpu_groups[0]}
    body = pods.pod(name, namespace=names.RESERVATION_NAMESPACE, labels=labels, node=spec.selected_node, gpus=1)
    await cluster.client.create(kinds.PODS, body)
    waiting = {"name": "c", "image": "c", "imageID": "", "restartCount": 0, "ready": False}
    waiting["state"] = {"waiting": {"reason": "ImagePullBackOff"}}
    status = {"status": {"phase": "Pending", "containerStatuses": [waiting]}}
    await cluster.client.patch(kinds.PODS, name, status, namespace=names.RESERVATION_NAMESPACE, subresource="status")
    return name


async def test_x01_q12_without_a_binder_the_pod_is_told_what_it_waits_for_and_what_to_check(
    sharing: ApiCluster,
) -> None:
    await shared_node(sharing)
    async with scheduling(sharing, binder_patience=PATIENCE, installation=OWN):
        await sharing.pod("a", **share(fraction="0.5"))
        (request,) = await requested(sharing, "a")
        assert await sharing.waits("a") == NO_BINDER
        await until(lambda: events(sharing, "a"))
        await asyncio.sleep(2 * PATIENCE)
        assert await events(sharing, "a") == [NO_BINDER], "once"
        await bind(sharing, request)
        await sharing.bound("a")
        await asyncio.sleep(2 * PATIENCE)
        assert await condition(sharing, "a") == ("True", "")


async def test_x01_a_reservation_pod_that_does_not_start_is_what_the_pod_waits_for(sharing: ApiCluster) -> None:
    await shared_node(sharing)
    async with scheduling(sharing, binder_patience=PATIENCE):
        await sharing.pod("a", **share(fraction="0.5"))
        (request,) = await requested(sharing, "a")
        name = await reservation(sharing, request)
        told = await sharing.waits("a")
        await sharing.client.delete(kinds.PODS, name, namespace=names.RESERVATION_NAMESPACE, grace=0)
    assert f"the reservation pod {names.RESERVATION_NAMESPACE}/{name} on node n1 has not reported its GPU yet" in told
    assert "(Pending: ImagePullBackOff)" in told
    assert f"check `kubectl describe pod -n {names.RESERVATION_NAMESPACE} {name}`" in told


async def test_x01_a_pod_that_is_bound_while_it_is_told_keeps_the_condition_of_its_binding(
    sharing: ApiCluster,
) -> None:
    """The binder returns just then."""
    await shared_node(sharing)
    late: list[HttpRequest] = []

    async def bound_first(sent: HttpRequest, onwards: Any) -> Any:
        if sent.method == "PATCH" and b"no binder has carried out" in (sent.body or b""):
            (request,) = await requested(sharing, "a")
            await bind(sharing, request)
            late.append(sent)
        return await onwards()

    async with scheduling(sharing, sharing.wire(bound_first), binder_patience=PATIENCE):
        await sharing.pod("a", **share(fraction="0.5"))
        await sharing.bound("a")
        await asyncio.sleep(PATIENCE / 2)
    assert late
    assert await condition(sharing, "a") == ("True", "")


async def test_x01_why_reads_the_lease_of_the_binder_and_says_the_same_as_the_condition(
    sharing: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared_node(sharing)
    async with scheduling(sharing):
        await sharing.pod("a", **share(fraction="0.5"))
        await requested(sharing, "a")
    answer = await why_command._ask("a", "default", sharing.kubeconfig)
    check = f"check `kubectl get pods -n {names.KAI_NAMESPACE} -l app=binder`"
    assert answer.sentence.endswith(f"There is no leading binder: {check}.")
    monkeypatch.setattr("apportion.view.sharing.handed_over.NO_PROGRESS_SECONDS", -1)
    answer = await why_command._ask("a", "default", sharing.kubeconfig)
    assert f"no binder has carried out its BindRequest for node n1; {check}" in answer.sentence


@dataclass
class Told:
    """A cluster as a leader follows it, with a clock of its own; `said` are the pods that were told."""

    world: SharingWorld = field(default_factory=SharingWorld)
    now: float = 1000.0
    said: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world.node("n1", gpus=4)
        binder = BinderState()
        self.watched = OverdueRequests(
            self.world.view, cast("Reporter", self), binder, patience=15.0, now=lambda: self.now
        )

    def waits(self, request: Request, text: str, *, version: str) -> None:
        del version
        self.said[request.name] = text

    def asks(self, name: str, gpu: int = 0) -> Pod:
        pod = self.world.pod(name, memory=1000)
        self.watched.request_changed(None, self.world.asks(pod, "n1", f"GPU-n1-{gpu}", mib=1000))
        return pod

    def binds(self, pod: Pod) -> None:
        bound = self.world.pod(pod.metadata.name, memory=1000, node="n1")
        self.watched.pod_changed(pod, bound)

    def reserves(self, gpu: int = 0, holds: str = "") -> None:
        self.watched.pod_changed(None, self.world.reservation("n1", f"GPU-n1-{gpu}", holds))

    def passes(self, seconds: float) -> set[str]:
        """Time, second by second; who was told until then."""
        for _ in range(int(seconds)):
            self.now += 1
            self.watched.look()
        return set(self.said)


def test_g11_pods_that_wait_for_their_turn_with_a_busy_binder_are_not_told() -> None:
    told = Told()
    crowd = [told.asks(f"p{number:02}") for number in range(50)]
    for pod in crowd[:-1]:
        told.binds(pod)
        assert not told.passes(1)
    assert not told.passes(10)
    assert told.passes(1) == {"p49"}, f"after {LONGEST_SECONDS} s"


def test_g11_one_request_that_a_busy_binder_never_carries_out_is_told_in_the_end() -> None:
    told = Told()
    told.asks("stuck")
    for number in range(LONGEST_SECONDS - 1):
        told.binds(told.asks(f"p{number}", gpu=1))
        assert not told.passes(1)
    assert told.passes(1) == {"stuck"}


def test_x01_without_a_sign_of_the_binder_all_are_told_after_15_seconds() -> None:
    told = Told()
    told.asks("a")
    assert not told.passes(5)
    told.asks("b", gpu=1)
    assert told.passes(10) == {"a"}
    assert told.passes(5) == {"a", "b"}


def test_g05_what_happens_to_a_reservation_pod_is_progress_for_its_own_pods() -> None:
    told = Told()
    told.asks("a")
    told.asks("b", gpu=1)
    assert not told.passes(14)
    told.reserves()
    assert not told.passes(14)
    assert told.passes(1) == {"a", "b"}, "one has waited for 15 s since then, the other since the binder did something"
    assert "has not reported its GPU yet" in told.said["a"]
    assert "no binder has carried out" in told.said["b"]
    told.reserves(holds="GPU-n1-0")
    told.passes(15)
    assert "no binder has carried out" in told.said["a"]


def test_x01_nobody_looks_again_without_open_requests() -> None:
    told = Told()
    assert told.watched.look() is None
    pod = told.asks("a")
    assert told.watched.look() == told.now + 15
    told.binds(pod)
    assert told.watched.look() is None
