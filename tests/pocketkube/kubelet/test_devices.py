"""The device manager against a plugin on a real socket."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from apportion.apis.kubelet import checkpoint
from apportion.apis.kubelet import podresources_pb2 as pr
from apportion.apis.kubelet import podresources_pb2_grpc as prpc
from pocketkube.kubelet.devices.ledger import AllocationError
from pocketkube.kubelet.devices.node_devices import NodeDevices
from pocketkube.kubelet.devices.plugin import PluginError
from tests.builders import pods
from tests.pocketkube.kubelet.toyplugin import ToyPlugin

RESOURCE = "mig.das.com/1g.5gb"
OTHER = "mig.das.com/2g.10gb"


def pod(uid: str, *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return pods.pod(uid, uid=uid, containers=containers, init=init)


def wants(name: str, **limits: int) -> dict[str, Any]:
    spelled = {"one": RESOURCE, "two": OTHER}
    return pods.container(name, limits={spelled[key]: str(value) for key, value in limits.items()})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  the condition has no event
            await asyncio.sleep(0.01)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Unix sockets need a short path."""
    folder = Path(tempfile.mkdtemp(prefix="ap-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


class Node:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pods: list[dict[str, Any]] = []
        self.changes = 0
        self.devices = NodeDevices(folder, active=lambda: self.pods, changed=self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def admit(self, pod: dict[str, Any]) -> None:
        self.pods.append(pod)
        await self.devices.allocate(pod)

    def ids(self, uid: str, container: str, resource: str = RESOURCE) -> frozenset[str]:
        return self.devices.ledger.held(uid, container)[resource].ids

    def recorded(self) -> checkpoint.Checkpoint:
        return checkpoint.decode((self.folder / "device-plugins" / checkpoint.FILE_NAME).read_bytes())


@pytest.fixture
async def node(short_folder: Path) -> AsyncIterator[Node]:
    made = Node(short_folder)
    await made.devices.start()
    yield made
    await made.devices.stop()


@pytest.fixture
async def plugin(node: Node) -> AsyncIterator[ToyPlugin]:
    made = ToyPlugin(node.folder / "device-plugins", RESOURCE, ["a", "b", "c"])
    await made.start()
    await until(lambda: node.devices.totals().get(RESOURCE) == (3, 3))
    yield made
    await made.stop()


async def test_devices_of_a_plugin_become_capacity_and_health_changes_allocatable(
    node: Node, plugin: ToyPlugin
) -> None:
    plugin.set_health("b", healthy=False)
    await until(lambda: node.devices.totals()[RESOURCE] == (3, 2))
    assert node.changes >= 2
    assert node.recorded().registered() == {RESOURCE: ["a", "c"]}


async def test_a_plugin_that_goes_away_leaves_capacity_but_nothing_allocatable(node: Node, plugin: ToyPlugin) -> None:
    await plugin.stop()
    await until(lambda: node.devices.totals()[RESOURCE] == (3, 0))
    with pytest.raises(AllocationError, match="no healthy devices present"):
        await node.admit(pod("u1", wants("main", one=1)))
    await plugin.start()
    await until(lambda: node.devices.totals()[RESOURCE] == (3, 3))
    await node.admit(pod("u2", wants("main", one=1)))


async def test_a_second_registration_of_a_name_replaces_the_first(node: Node, plugin: ToyPlugin) -> None:
    newer = ToyPlugin(node.folder / "device-plugins", RESOURCE, ["x"])
    newer.socket = newer.socket.with_name("newer.sock")
    await newer.start()
    await until(lambda: node.devices.totals()[RESOURCE] == (1, 1))
    await plugin.stop()
    await node.admit(pod("u1", wants("main", one=1)))
    assert newer.called("Allocate") == [("x",)]
    await newer.stop()


async def test_a_registration_with_a_bad_version_or_name_is_refused(node: Node, plugin: ToyPlugin) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="v9"):
        await plugin.register(version="v9")
    with pytest.raises(grpc.aio.AioRpcError, match="is invalid"):
        await plugin.register(resource="cpu")


async def test_s07_allocate_is_called_per_container_and_recorded_with_the_uid(node: Node, plugin: ToyPlugin) -> None:
    await node.admit(pod("u1", wants("main", one=2), wants("side", one=1)))
    assert [len(ids) for ids in plugin.called("Allocate")] == [2, 1]
    held = node.recorded().container("u1", "main")
    assert [(entry.resource_name, entry.ids()) for entry in held] == [(RESOURCE, node.ids("u1", "main"))]
    assert node.ids("u1", "main") | node.ids("u1", "side") == {"a", "b", "c"}


async def test_too_few_devices_and_a_failing_plugin_are_said_as_a_kubelet_says_them(
    node: Node, plugin: ToyPlugin
) -> None:
    with pytest.raises(AllocationError, match="Requested: 4, Available: 3"):
        await node.admit(pod("u1", wants("main", one=4)))
    plugin.fail_allocate = "no such slice"
    with pytest.raises(AllocationError, match="rpc error: code = Unknown desc = no such slice"):
        await node.admit(pod("u2", wants("main", one=1)))


async def test_devices_of_a_gone_pod_are_given_to_the_next_one(node: Node, plugin: ToyPlugin) -> None:
    await node.admit(pod("u1", wants("main", one=3)))
    node.pods.clear()
    assert node.recorded().container("u1", "main"), "freed when the next one asks, not before"
    await node.admit(pod("u2", wants("main", one=3)))
    assert node.ids("u2", "main") == {"a", "b", "c"}
    assert not node.recorded().container("u1", "main")


async def test_an_init_container_hands_its_devices_on_but_a_sidecar_keeps_them(node: Node, plugin: ToyPlugin) -> None:
    await node.admit(pod("u1", wants("main", one=1), wants("more", one=1), init=(wants("first", one=1),)))
    assert node.ids("u1", "first") == node.ids("u1", "main")
    assert node.ids("u1", "more") != node.ids("u1", "main")
    node.pods.clear()
    sidecar = wants("proxy", one=1) | {"restartPolicy": "Always"}
    await node.admit(pod("u2", wants("main", one=1), init=(wants("first", one=1), sidecar)))
    assert node.ids("u2", "first") == node.ids("u2", "proxy")
    assert node.ids("u2", "proxy") != node.ids("u2", "main")


async def test_s07_pre_start_names_the_same_ids_before_every_start(node: Node, plugin: ToyPlugin) -> None:
    container = wants("main", one=2)
    await node.admit(pod("u1", container))
    await node.devices.pre_start("u1", container)
    await node.devices.pre_start("u1", container)
    assert len(plugin.called("Allocate")) == 1
    assert plugin.called("PreStartContainer") == [tuple(sorted(node.ids("u1", "main")))] * 2
    plugin.fail_pre_start = "slice not ready"
    with pytest.raises(PluginError, match="PreStartContainer rpc failed with err: rpc error: code = Unavailable desc"):
        await node.devices.pre_start("u1", container)


async def test_two_resources_are_allocated_one_by_one_and_both_answers_count(node: Node, plugin: ToyPlugin) -> None:
    other = ToyPlugin(node.folder / "device-plugins", OTHER, ["z"])
    await other.start()
    await until(lambda: OTHER in node.devices.totals())
    await node.admit(pod("u1", wants("main", one=1, two=1)))
    options = node.devices.run_options("u1", "main")
    assert len(options.cdi) == 2
    assert options.env["TOY"] in {"z", *node.ids("u1", "main")}
    await other.stop()


async def test_pod_resources_names_pods_and_containers_but_no_ordinary_init_containers(
    node: Node, plugin: ToyPlugin
) -> None:
    await node.admit(pod("u1", wants("main", one=1), init=(wants("first", one=1),)))
    async with grpc.aio.insecure_channel(f"unix:{node.folder / 'pod-resources' / 'kubelet.sock'}") as channel:
        stub = prpc.PodResourcesListerStub(channel)
        answer = await stub.List(pr.ListPodResourcesRequest(), timeout=5)
        one = await stub.Get(pr.GetPodResourcesRequest(pod_name="u1", pod_namespace="default"), timeout=5)
    (listed,) = answer.pod_resources
    assert listed == one.pod_resources
    assert [(c.name, list(c.devices[0].device_ids)) for c in listed.containers] == [
        ("main", sorted(node.ids("u1", "main")))
    ]


async def test_after_a_restart_sockets_are_gone_and_held_devices_are_remembered(node: Node, plugin: ToyPlugin) -> None:
    container = wants("main", one=1)
    await node.admit(pod("u1", container))
    before = node.ids("u1", "main")
    await node.devices.stop()
    node.devices = NodeDevices(node.folder, active=lambda: node.pods, changed=lambda: None)
    await node.devices.start()
    assert not plugin.socket.exists()
    assert node.ids("u1", "main") == before
    await node.devices.pre_start("u1", container)
    with pytest.raises(AllocationError, match="no healthy devices"):
        await node.devices.allocate(node.pods[0])
    await plugin.stop()
    await plugin.start()
    await until(lambda: node.devices.totals()[RESOURCE] == (3, 3))
    await node.devices.allocate(node.pods[0])
    assert node.ids("u1", "main") == before
