"""What counts as free: not the places of foreign slices, and not what a terminating pod still holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apportion.admission.fallback.occupancy import Occupancy
from apportion.apis import names
from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.request import Request
from apportion.view.requests import read
from apportion.view.view import View
from tests.builders import accelerators, nodes
from tests.builders.pods import fallback_pod, typed

STATIC = {"nvidia.com/mig-2g.20gb": 1}
HALF = {"mig.das.com/3g.20gb": 1}
TERMINATED = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
RUNNING = {"name": "side", "state": {"running": {}}}


def node(**devices: str) -> Node:
    return msgspec.convert(nodes.node("n1", resources={"mig.das.com/3g.20gb": 7, **devices}), Node)


def accelerator(*foreign: dict[str, Any]) -> NodeAccelerator:
    gpu = accelerators.gpu("GPU-1", foreign=foreign)
    return msgspec.convert(accelerators.accelerator("n1", [gpu], agent_uid="agent"), NodeAccelerator)


def agent(*, ready: bool = True) -> Pod:
    return typed(accelerators.agent_pod("n1", ready=ready, uid="agent"))


def wanting(devices: dict[str, int], uid: str = "new", **more: Any) -> Pod:
    return typed(fallback_pod(uid, uid=uid, limits=devices), **more)


class Counted:
    """A view that the test feeds, and what fallback counts on it."""

    def __init__(self) -> None:
        self.view = View(volumes=False)
        self.occupancy = Occupancy(self.view)
        self.view.pods.changed(None, agent())

    def room(self, devices: dict[str, int]) -> int:
        """How many such pods fit."""
        before = self.view.fleet.record()
        with self.occupancy.assumed(()):
            found = 0
            while self.occupancy.place(asked(wanting(devices, f"p{found}"))) is not None:
                found += 1
        assert self.view.fleet.record() == before
        return found


@pytest.fixture
def counted() -> Counted:
    return Counted()


def asked(pod: Pod) -> Request:
    request = read(pod).request
    assert request is not None
    return request


def test_d01_places_of_slices_that_others_made_are_not_free(counted: Counted) -> None:
    counted.view.nodes.changed(None, node())
    clean, crowded = accelerator(), accelerator({"start": 4, "size": 4})
    counted.view.accelerators.changed(None, clean)
    assert counted.room(HALF) == 2
    counted.view.accelerators.changed(clean, crowded)
    assert counted.room(HALF) == 1
    counted.view.nodes.changed(node(), None)
    counted.view.nodes.changed(None, node())
    assert counted.room(HALF) == 1
    counted.view.accelerators.changed(crowded, clean)
    assert counted.room(HALF) == 2
    counted.view.accelerators.changed(clean, None)
    assert counted.room(HALF) == 0


def test_d01_a_node_that_comes_back_has_its_gpus_again(counted: Counted) -> None:
    counted.view.accelerators.changed(None, accelerator())
    counted.view.nodes.changed(None, node())
    assert counted.room(HALF) == 2
    counted.view.nodes.changed(node(), None)
    assert counted.room(HALF) == 0
    counted.view.nodes.changed(None, node())
    assert counted.room(HALF) == 2


@pytest.mark.parametrize(("sidecars", "free"), [([], 1), ([RUNNING], 0), ([TERMINATED], 1)])
def test_f04_a_sidecar_that_runs_on_in_a_pod_on_its_way_out_holds_its_devices(
    counted: Counted, sidecars: list[dict[str, Any]], free: int
) -> None:
    counted.view.nodes.changed(None, node(**dict.fromkeys(STATIC, "1")))
    status = {"phase": "Running", "containerStatuses": [TERMINATED], "initContainerStatuses": sidecars}
    holder = wanting(STATIC, "holder", status=status)
    holder.spec.node_name = "n1"
    holder.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    counted.view.pods.changed(None, holder)
    assert counted.room(STATIC) == free


def test_s09_a_node_whose_agent_pod_is_not_ready_takes_no_slices(counted: Counted) -> None:
    counted.view.nodes.changed(None, node())
    counted.view.accelerators.changed(None, accelerator())
    assert counted.room(HALF) == 2
    counted.view.pods.changed(agent(), agent(ready=False))
    assert counted.room(HALF) == 0


def test_f04_pods_without_a_node_are_assumed_on_one_and_are_gone_again_afterwards(counted: Counted) -> None:
    counted.view.nodes.changed(None, node(**dict.fromkeys(STATIC, "3")))
    first, second = wanting(STATIC, "first"), wanting(STATIC, "second")
    counted.view.pods.changed(None, first)
    assert counted.room(STATIC) == 2
    counted.view.pods.changed(None, second)
    assert counted.room(STATIC) == 1
    assert counted.view.fleet.pod_nodes == {"agent": "n1"}
    bound = msgspec.structs.replace(first, spec=msgspec.structs.replace(first.spec, node_name="n1"))
    counted.view.pods.changed(first, bound)
    assert counted.room(STATIC) == 1
    counted.view.pods.changed(second, None)
    assert counted.room(STATIC) == 2


def test_f04_a_pod_bound_elsewhere_than_assumed_makes_room(counted: Counted) -> None:
    counted.view.nodes.changed(None, node(**dict.fromkeys(STATIC, "1")))
    waiting = wanting(STATIC, "first")
    counted.view.pods.changed(None, waiting)
    assert counted.room(STATIC) == 0
    bound = msgspec.structs.replace(waiting, spec=msgspec.structs.replace(waiting.spec, node_name="n2"))
    counted.view.pods.changed(waiting, bound)
    assert counted.room(STATIC) == 1


def test_f04_a_pod_that_our_scheduler_refuses_to_read_holds_nothing(counted: Counted) -> None:
    counted.view.nodes.changed(None, node(**dict.fromkeys(STATIC, "2")))
    odd = {names.POLICY: "luck"}
    for name, scheduler in (("ours", names.DAS_SCHEDULER), ("theirs", names.DEFAULT_SCHEDULER)):
        made = wanting(STATIC, name)
        made.metadata.annotations = odd
        made.spec.scheduler_name = scheduler
        counted.view.pods.changed(None, made)
    assert counted.room(STATIC) == 1
