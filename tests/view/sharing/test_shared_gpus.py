"""Shared GPUs in the view: which reservation counts, and which GPUs take new shares."""

from __future__ import annotations

import random
from typing import Any

import pytest

from apportion.apis import names, shared_gpus
from apportion.apis.identities import DeviceUUID, NodeName
from apportion.apis.shared_gpus import SharedGpu
from apportion.core.ledger import GpuLedger
from apportion.view.view import View
from tests.builders import accelerators, nodes, pods
from tests.builders.accelerators import A100, CATALOG, T4
from tests.view import deciding
from tests.view.objects import BIND_REQUESTS, CONFIGS, NODES, PODS, REPORTS, Cluster, Follower
from tests.view.streams import RESERVATIONS

Json = dict[str, Any]
MIB = accelerators.model(T4).memory_mib
GROUP = "group"


class Shared:
    """A node with two GPUs, one of which pods share."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.view = Follower(self.cluster, View(CATALOG), random.Random(1))
        config = {"metadata": {"name": names.KAI_CONFIG_OBJECT}, "spec": {"admission": {"gpuSharing": True}}}
        self.cluster.put(CONFIGS, config)
        self.cluster.put(NODES, nodes.node("n1", resources={names.NVIDIA_GPU: 2}, mig_capable=False))
        self.report({}, {})

    def report(self, *gpus: Json) -> None:
        """By the agent: GPU-0, GPU-1 and so on, each with what is special about it."""
        usual: Json = {"product": T4, "mig": False, "healthy": True}
        listed = [accelerators.gpu(f"GPU-{number}", **usual | special) for number, special in enumerate(gpus)]
        self.cluster.put(REPORTS, accelerators.accelerator("n1", listed))

    def handed_over(self, name: str, device: str, group: str = "") -> None:
        """A pod without a node, and the request to bind it; a group of its own if nothing else is said."""
        self.sharer(name, node="")
        metadata = {"name": name, "namespace": "default", "uid": f"request-{name}"}
        place = {"selectedNode": "n1", "selectedGPUGroups": [group or name], "selectedDevices": [device]}
        spec = {"podName": name, "podUID": f"uid-{name}", **place}
        self.cluster.put(BIND_REQUESTS, {"metadata": metadata, "spec": spec})

    def whole(self, name: str) -> None:
        body = pods.our_pod(name, uid=f"uid-{name}", gpus=1, node="n1")
        self.cluster.put(PODS, {**body, "status": {"phase": "Pending"}})

    def sharer(self, name: str, *gpus: SharedGpu, node: str = "n1") -> None:
        annotations = {names.SHARED_GPUS: shared_gpus.encode_shared_gpus(gpus)} if gpus else {}
        labels = shared_gpus.group_labels([gpu.group for gpu in gpus] or [GROUP])
        more = {"node": node, "labels": labels, "annotations": annotations} if node else {}
        made = pods.our_pod(name, uid=f"uid-{name}", fraction="0.5", **more)
        self.cluster.put(PODS, {**made, "status": {"phase": "Pending"}})

    def reservation(self, name: str, gpu: str = "", planned: str = "GPU-0", group: str = GROUP) -> None:
        annotations = {names.PLANNED_GPU: planned} | ({names.RESERVED_GPU: gpu} if gpu else {})
        options: Json = {"namespace": RESERVATIONS, "labels": {names.GPU_GROUP_LABEL: group}, "node": "n1"}
        made = pods.pod(name, uid=f"uid-{name}", gpus=1, annotations=annotations, **options)
        self.cluster.put(PODS, {**made, "status": {"phase": "Running"}})

    def gone(self, namespace: str, name: str) -> None:
        self.cluster.remove(PODS, f"{namespace}/{name}")

    def gpu(self, uuid: str = "GPU-0") -> GpuLedger:
        self.view.catch_up()
        return self.view.view.fleet.nodes[NodeName("n1")].gpus[DeviceUUID(uuid)]

    def sharers(self, uuid: str) -> set[str]:
        return {key.partition("/")[0] for key in self.gpu(uuid).shares}

    def fits(self, **ask: Any) -> bool:
        self.view.catch_up()
        return deciding.fits(self.view.view.fleet, deciding.read(pods.our_pod("new", uid="uid-new", **ask)))


@pytest.fixture
def shared() -> Shared:
    made = Shared()
    made.sharer("a", SharedGpu(GROUP, DeviceUUID("GPU-0"), MIB // 2))
    made.reservation("r1", "GPU-0")
    return made


def test_g05_a_gpu_whose_reservation_came_back_on_another_one_takes_no_more_shares(shared: Shared) -> None:
    assert shared.gpu().free_mib == MIB - MIB // 2
    assert shared.fits(fraction="0.5")
    shared.gone(RESERVATIONS, "r1")
    assert shared.gpu().free_mib == MIB - MIB // 2, "it is on its way"
    shared.reservation("r2", "GPU-1")
    assert shared.gpu().free_mib == 0
    assert not shared.fits(fraction="0.1")
    assert not shared.fits(limits={names.NVIDIA_GPU: "1"}), "one GPU has a sharer, the other is held"
    shared.gone(RESERVATIONS, "r2")
    shared.reservation("r3", "GPU-0")
    assert shared.gpu().free_mib == MIB - MIB // 2
    assert shared.fits(fraction="0.5")


def test_g05_the_gpu_is_open_again_once_the_sharers_that_nothing_holds_it_for_are_gone(shared: Shared) -> None:
    shared.gone(RESERVATIONS, "r1")
    shared.reservation("r2", "GPU-1")
    assert shared.gpu().free_mib == 0
    shared.gone("default", "a")
    assert shared.gpu().free_mib == MIB
    shared.gone(RESERVATIONS, "r2")
    assert shared.fits(fraction="0.9", devices=2)


def test_g05_of_two_reservations_one_that_holds_the_gpu_of_the_sharers_is_enough(shared: Shared) -> None:
    shared.reservation("r0", "GPU-1")
    assert shared.gpu().free_mib == MIB - MIB // 2
    shared.gone(RESERVATIONS, "r1")
    assert shared.gpu().free_mib == 0


def test_g10_of_a_slot_without_a_uuid_nobody_can_say_that_its_reservation_is_elsewhere(shared: Shared) -> None:
    shared.cluster.remove(REPORTS, f"{names.DAS_NAMESPACE}/n1")
    shared.gone("default", "a")
    shared.gone(RESERVATIONS, "r1")
    shared.sharer("b", SharedGpu(GROUP, DeviceUUID("n1/0"), 500))
    shared.reservation("r2", "GPU-0", planned="n1/0")
    assert shared.gpu("n1/0").free_mib == 500
    shared.sharer("c", SharedGpu(GROUP, DeviceUUID("n1/0"), 100, "GPU-1"))
    assert shared.gpu("n1/0").free_mib == 0, "this one says which GPU it has, and it is another one"


def test_g10_a_slot_is_known_by_its_uuid_once_an_agent_reports_it(shared: Shared) -> None:
    report = shared.cluster.all(REPORTS)[f"{names.DAS_NAMESPACE}/n1"]
    shared.gone("default", "a")
    shared.gone(RESERVATIONS, "r1")
    shared.cluster.remove(REPORTS, f"{names.DAS_NAMESPACE}/n1")
    shared.sharer("b", SharedGpu(GROUP, DeviceUUID("n1/1"), 500, "GPU-1"))
    shared.reservation("r2", "GPU-1", planned="n1/1")
    assert shared.gpu("n1/1").shared_mib == 500, "half of a GPU whose memory nobody knows"
    shared.cluster.put(REPORTS, report)
    assert shared.gpu("GPU-1").shared_mib == MIB // 2
    assert shared.gpu("GPU-0").free_mib == MIB


def test_g10_two_groups_that_were_planned_on_one_slot_count_on_the_gpus_that_they_have(shared: Shared) -> None:
    """By two schedulers that both believed to lead."""
    shared.cluster.remove(REPORTS, f"{names.DAS_NAMESPACE}/n1")
    shared.gone("default", "a")
    shared.gone(RESERVATIONS, "r1")
    slot = DeviceUUID("n1/1")
    for name, group, gpu in (("b", GROUP, "GPU-x"), ("c", "other", "GPU-y")):
        shared.sharer(name, SharedGpu(group, slot, 500, gpu))
        shared.reservation(f"r-{name}", planned=slot, group=group)
    shared.sharer("d", SharedGpu(GROUP, slot, 500, "GPU-x"))
    assert shared.gpu(slot).free_mib == 0
    assert shared.gpu("n1/0").free_mib == 500
    assert shared.view.view.shares.uuid_of(DeviceUUID("n1/0")) == "GPU-y"
    assert shared.fits(fraction="0.5")
    shared.sharer("e", SharedGpu("other", slot, 500, "GPU-y"))
    assert shared.gpu("n1/0").free_mib == 0
    assert not shared.fits(fraction="0.5")
    shared.gone("default", "b")
    shared.gone("default", "d")
    shared.gone(RESERVATIONS, "r-b")
    assert shared.gpu(slot).free_mib == 0, "alone again, it is where it was planned"
    assert shared.gpu("n1/0").takes_whole


WHOLE = {names.NVIDIA_GPU: "1"}
HELD = {"holders": [{"podUID": "uid-whole", "kind": "whole"}]}


@pytest.mark.parametrize("waiting", ["no reservation", "reservation without GPU"])
def test_g05_a_pod_counts_on_another_gpu_while_the_planned_one_is_that_of_another_group(waiting: str) -> None:
    made = Shared()
    made.handed_over("a", "GPU-0")
    made.handed_over("b", "GPU-1")
    if waiting == "reservation without GPU":
        made.reservation("r-b", planned="GPU-1", group="b")
    made.reservation("r-a", "GPU-1", planned="GPU-0", group="a")
    assert (made.sharers("GPU-0"), made.sharers("GPU-1")) == ({"uid-b"}, {"uid-a"})
    assert not made.fits(limits=WHOLE)
    assert not made.fits(fraction="0.6")
    made.gone(RESERVATIONS, "r-a")
    assert (made.sharers("GPU-0"), made.sharers("GPU-1")) == ({"uid-a"}, {"uid-b"}), "as planned"


def test_g05_a_pod_whose_planned_gpu_is_taken_counts_on_one_that_its_reservation_can_get() -> None:
    made = Shared()
    special: tuple[Json, ...] = (HELD, {}, {"mig": True, "product": A100}, {"healthy": False}, {}, {})
    made.report(*special)
    made.whole("whole")
    made.reservation("r-a", "GPU-1", planned="GPU-0", group="a")
    made.handed_over("b", "GPU-1")
    made.handed_over("c", "GPU-4")
    assert (made.sharers("GPU-4"), made.sharers("GPU-5")) == ({"uid-c"}, {"uid-b"})
    made.handed_over("d", "GPU-5")
    assert made.sharers("GPU-1") == {"uid-b"}, "nothing else is left, so it counts as planned"
    assert made.sharers("GPU-5") == {"uid-d"}


@pytest.mark.parametrize(("planned", "other"), [("GPU-0", "GPU-1"), ("GPU-1", "GPU-0")])
def test_g05_a_pod_that_joins_others_counts_where_they_do(planned: str, other: str) -> None:
    made = Shared()
    made.reservation("r-a", planned, planned=other, group="a")
    made.handed_over("b", planned)
    made.handed_over("c", other, group="b")
    assert (made.sharers(planned), made.sharers(other)) == (set(), {"uid-b", "uid-c"})
    made.gone(RESERVATIONS, "r-a")
    assert made.sharers("GPU-0") == {"uid-b", "uid-c"}, "of two plans for a group the first one counts"


def test_x04_a_pod_counts_on_another_gpu_if_the_kubelet_gave_the_planned_one_to_a_pod_as_a_whole() -> None:
    made = Shared()
    made.handed_over("a", "GPU-0")
    made.whole("whole")
    made.report(HELD, {})
    assert made.gpu("GPU-0").whole == "uid-whole"
    assert (made.sharers("GPU-0"), made.sharers("GPU-1")) == (set(), {"uid-a"})
    made.report({}, HELD)
    assert (made.sharers("GPU-0"), made.sharers("GPU-1")) == ({"uid-a"}, set())


@pytest.mark.parametrize("first", ["GPU-0", "n1/0"])
def test_g11_two_groups_that_were_planned_on_one_gpu_count_on_two(first: str) -> None:
    """By two schedulers that both believed to lead."""
    made = Shared()
    if first == "n1/0":
        made.cluster.remove(REPORTS, f"{names.DAS_NAMESPACE}/n1")
    made.handed_over("a", first)
    made.handed_over("b", first)
    made.handed_over("c", first, group="b")
    other = first.replace("0", "1")
    assert (made.sharers(first), made.sharers(other)) == ({"uid-a"}, {"uid-b", "uid-c"})
    made.reservation("r-b", "GPU-0", planned=first, group="b")
    assert (made.sharers(first), made.sharers(other)) == ({"uid-b", "uid-c"}, {"uid-a"}), "it has its GPU"


def test_t04_a_pod_holds_no_gpu_of_another_node_whatever_is_written_on_it(shared: Shared) -> None:
    shared.cluster.put(NODES, nodes.node("n2"))
    shared.sharer("x", SharedGpu("other", DeviceUUID("GPU-1"), MIB), node="n2")
    assert shared.gpu("GPU-1").free_mib == MIB
    assert shared.gpu("GPU-1").takes_whole


def test_g04_what_is_written_on_a_pod_frees_no_memory(shared: Shared) -> None:
    shared.sharer("x")
    negative = f'[{{"group": "{GROUP}", "device": "GPU-0", "mib": -5000}}]'
    shared.cluster.change(
        PODS, "default/x", lambda obj: obj["metadata"]["annotations"].update({names.SHARED_GPUS: negative})
    )
    assert shared.gpu().shared_mib == 2 * (MIB // 2), "what it asks for counts, on the GPU of its reservation"


def test_g04_a_pod_whose_share_cannot_be_read_any_more_keeps_what_it_has(shared: Shared) -> None:
    shared.cluster.change(
        PODS, "default/a", lambda obj: obj["metadata"]["annotations"].update({names.GPU_FRACTION: "?"})
    )
    assert shared.gpu().shared_mib == MIB // 2


def test_g11_a_request_without_amounts_counts_by_what_the_pod_asks_for(shared: Shared) -> None:
    """As another scheduler may write it."""
    shared.handed_over("x", "GPU-1")
    assert shared.gpu("GPU-1").shares == {"uid-x/0": MIB // 2}
    shared.cluster.remove(BIND_REQUESTS, "default/x")
    assert not shared.gpu("GPU-1").shares


def test_g04_a_fraction_of_gpus_of_different_memory_at_the_binder_counts_by_the_memory_of_each() -> None:
    made = Shared()
    gpus = [accelerators.gpu(f"GPU-{n}", product=T4, mig=False, memoryMiB=mib) for n, mib in enumerate((MIB, 4001))]
    made.cluster.put(REPORTS, accelerators.accelerator("n1", gpus))
    body = pods.our_pod("x", uid="uid-x", fraction="0.5", devices=2)
    made.cluster.put(PODS, {**body, "status": {"phase": "Pending"}})
    spec = {"podName": "x", "podUID": "uid-x", "selectedNode": "n1", "selectedGPUGroups": ["g", "h"]}
    spec |= {"selectedDevices": ["GPU-0", "GPU-1"], "receivedGPU": {"count": 2, "memoryMiB": MIB // 2}}
    metadata = {"name": "x", "namespace": "default", "uid": "request"}
    made.cluster.put(BIND_REQUESTS, {"metadata": metadata, "spec": spec})
    assert [made.gpu(uuid).shared_mib for uuid in ("GPU-0", "GPU-1")] == [MIB // 2, 2000]


def test_x04_a_whole_gpu_is_assumed_elsewhere_once_the_assumed_one_is_shared() -> None:
    """Which GPU a pod has is not known until an agent says so; that one is shared says that it is another one."""
    made = Shared()
    made.whole("whole")
    first = next(uuid for uuid in ("GPU-0", "GPU-1") if made.gpu(uuid).whole)
    made.sharer("a", SharedGpu(GROUP, DeviceUUID(first), 1000))
    assert made.gpu(first).whole is None
    assert sum(made.gpu(uuid).takes_whole for uuid in ("GPU-0", "GPU-1")) == 0
    made.gone("default", "a")
    assert sum(made.gpu(uuid).takes_whole for uuid in ("GPU-0", "GPU-1")) == 1
