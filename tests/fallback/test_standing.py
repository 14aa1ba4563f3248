"""What counts as free: places of strangers do not, and neither what a pod on its way out still holds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apportion.admission.fallback.standing import Standing, request_of
from apportion.apis import names
from apportion.apis.accelerators import NodeAccelerator
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.core.catalog import Catalog
from tests.fallback.ground import pod
from tests.fallback.test_slices_fall_back import condition, gpu

STATIC = {"nvidia.com/mig-2g.20gb": 1}
HALF = {"mig.das.com/3g.20gb": 1}
TERMINATED = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
RUNNING = {"name": "side", "state": {"running": {}}}


def node(**devices: str) -> Node:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "mig.das.com/3g.20gb": "7", **devices}
    metadata = {"name": "n1", "labels": {names.MIG_CAPABLE_LABEL: "true"}}
    return msgspec.convert({"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}}, Node)


def accelerator(*foreign: dict[str, Any]) -> NodeAccelerator:
    status = {"gpus": [gpu() | {"foreign": list(foreign)}], "conditions": [condition()]}
    return msgspec.convert({"metadata": {"name": "n1"}, "status": status}, NodeAccelerator)


def wanting(devices: dict[str, int], uid: str = "new", **more: Any) -> Pod:
    body = pod(devices, name=uid)
    return msgspec.convert({**body, "metadata": body["metadata"] | {"uid": uid}, **more}, Pod)


def room(standing: Standing, devices: dict[str, int]) -> int:
    """How many such pods fit."""
    standing.settle()
    mark = standing.fleet.checkpoint()
    found = 0
    while standing.place(request_of(wanting(devices, f"p{found}"))) is not None:
        found += 1
    standing.fleet.rollback(mark)
    return found


def test_d01_places_of_slices_that_others_made_are_not_free() -> None:
    standing = Standing(Catalog.shipped())
    standing.node_changed(None, node())
    clean, crowded = accelerator(), accelerator({"start": 4, "size": 4})
    standing.accelerator_changed(None, clean)
    assert room(standing, HALF) == 2
    standing.accelerator_changed(clean, crowded)
    assert room(standing, HALF) == 1
    standing.node_changed(node(), None)
    standing.node_changed(None, node())
    assert room(standing, HALF) == 1
    standing.accelerator_changed(crowded, clean)
    assert room(standing, HALF) == 2
    standing.accelerator_changed(clean, None)
    assert room(standing, HALF) == 0


def test_d01_a_node_that_comes_back_has_its_gpus_again() -> None:
    standing = Standing(Catalog.shipped())
    standing.accelerator_changed(None, accelerator())
    standing.node_changed(None, node())
    assert room(standing, HALF) == 2
    standing.node_changed(node(), None)
    assert room(standing, HALF) == 0
    standing.node_changed(None, node())
    assert room(standing, HALF) == 2


@pytest.mark.parametrize(("sidecars", "free"), [([], 1), ([RUNNING], 0), ([TERMINATED], 1)])
def test_f04_a_sidecar_that_runs_on_in_a_pod_on_its_way_out_holds_its_devices(
    sidecars: list[dict[str, Any]], free: int
) -> None:
    standing = Standing(Catalog.shipped())
    standing.node_changed(None, node(**dict.fromkeys(STATIC, "1")))
    status = {"phase": "Running", "containerStatuses": [TERMINATED], "initContainerStatuses": sidecars}
    holder = wanting(STATIC, "holder", status=status)
    holder.spec.node_name = "n1"
    holder.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    standing.pod_changed(None, holder, "holder")
    assert room(standing, STATIC) == free
