"""A fleet as a file: what is loaded decides the same, nothing secret is in it, and what is no snapshot is refused."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import pytest

from apportion.apis import names
from apportion.apis.errors import InputError
from apportion.apis.identities import NodeName, PodUID, QueueName
from apportion.apis.placements import SlicePlacement
from apportion.core.evictions.disruption_budgets import KnownBudgets
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Gang, Subgroup
from apportion.core.queues.accounts import Charge
from apportion.core.queues.amounts import Amounts
from apportion.core.queues.tree import Allowance, Queue, QueueTree
from apportion.view import snapshot
from apportion.view.view import View
from tests.builders import accelerators, nodes
from tests.builders.accelerators import gpu
from tests.view import deciding
from tests.view.objects import CLAIMS, NODES, PODS, REPORTS, Cluster, Follower
from tests.view.streams import claim, pod

NO_NUMBERS = (
    b'{"apportion_snapshot":2,"queues":[{"name":"a","parent":"","priority":1,"created":"","allowances":[[0,-1,1,0]]}]}'
)
SLICE = {"mig.das.com/1g.5gb": 1}


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.put(NODES, nodes.node("n1", resources={**nodes.slice_devices(1), names.NVIDIA_GPU: 2}))
    holders = [{"podUID": "uid-whole", "kind": "whole"}]
    gpus = [gpu("GPU-0"), gpu("GPU-1", mig=False), gpu("GPU-2", mig=False, holders=holders)]
    made.put(REPORTS, accelerators.accelerator("n1", gpus, agent_uid="agent"))
    made.put(PODS, accelerators.agent_pod("n1", uid="agent"))
    made.put(PODS, pod("whole", {names.NVIDIA_GPU: 1}, node="n1"))
    sliced = pod("sliced", SLICE, node="n1")
    made.put(PODS, sliced)
    made.put(CLAIMS, claim(sliced, "1g.5gb", node="n1", gpu="GPU-0", start=3))
    made.put(PODS, pod("waits", SLICE))
    return made


def seen(cluster: Cluster) -> View:
    follower = Follower(cluster, View(), random.Random(1))
    follower.catch_up()
    return follower.view


def test_x03_a_saved_and_loaded_fleet_is_the_same_and_decides_the_same(cluster: Cluster) -> None:
    view = seen(cluster)
    loaded = snapshot.load(snapshot.save(view))
    assert loaded.fleet.record() == view.fleet.record()
    assert loaded.fleet.nodes["n1"].devices_of("uid-whole") == ("GPU-2",)
    (request,) = loaded.waiting
    assert request.name == "waits"
    assert deciding.decided(loaded.fleet, request) == deciding.decided(view.fleet, request)
    assert snapshot.save_fleet(loaded.fleet, loaded.waiting) == snapshot.save(view)


def test_x03_queues_gangs_and_budgets_are_saved_too(cluster: Cluster) -> None:
    fleet = seen(cluster).fleet
    queues = [
        Queue(QueueName("a"), priority=101, gpu=Allowance(1000, -1, Fraction(1, 3)), preempt_min_runtime=5),
        Queue(QueueName("b"), QueueName("a"), created="2026-01-01T00:00:00Z", reclaim_min_runtime=0),
    ]
    fleet.accounts.set_tree(QueueTree(queues))
    fleet.set_gang(Gang("default/g", 2, (Subgroup("head", 1),), "2026-01-01T00:00:00Z", started=7, below_since=9))
    fleet.budgets = KnownBudgets({"default/x": 1}, {PodUID("uid-whole"): ("default/x",)})
    fleet.reserve(Reservation("r", NodeName("n1"), {"cpu": 1}, owner="o", charge=Charge(QueueName("b"), Amounts(5, 1))))
    loaded = snapshot.load(snapshot.save_fleet(fleet)).fleet
    assert loaded.record() == fleet.record()
    assert list(loaded.accounts.tree.queues.values()) == queues
    assert loaded.accounts.used(QueueName("a")) == Amounts(5, 1)
    assert loaded.budgets.of(PodUID("uid-whole")) == ("default/x",)


def test_x03_reservations_and_pods_on_their_way_out_are_saved_too(cluster: Cluster) -> None:
    view = seen(cluster)
    view.fleet.set_releasing("uid-sliced", releasing=True)
    place = SlicePlacement("GPU-0", "1g.5gb", 5, 1)
    view.fleet.reserve(Reservation("r", "n1", {"cpu": 1000}, (place,), owner="g", after=("uid-sliced",)))
    loaded = snapshot.load(snapshot.save(view))
    assert loaded.fleet.record() == view.fleet.record()


def test_x03_g05_the_namespace_of_reservation_pods_is_saved_too() -> None:
    view = View(reservation_namespace="reservations")
    assert snapshot.load(snapshot.save(view)).fleet.reservation_namespace == "reservations"


def test_x03_a_snapshot_has_no_secrets(cluster: Cluster) -> None:
    body = pod("secret", SLICE, annotations={"example.com/token": "s3cret-1"})
    container = body["spec"]["containers"][0]
    container |= {"env": [{"name": "PASSWORD", "value": "s3cret-2"}], "image": "s3cret-3", "command": ["s3cret-4"]}
    body["spec"]["serviceAccountName"] = "s3cret-5"
    cluster.put(PODS, body)
    saved = snapshot.save(seen(cluster))
    assert b"secret" in saved, "its name is there"
    assert b"s3cret" not in saved


@pytest.mark.parametrize(
    ("data", "fix"),
    [
        (b"", "is not a snapshot"),
        (b"{}", "is not a snapshot"),
        (b"[1]", "is not a snapshot"),
        (b'{"apportion_snapshot":2,"nodes":[{"name":7}]}', "is not a snapshot"),
        (NO_NUMBERS, "of GPU, CPU and memory"),
        (b'{"apportion_snapshot":99}', "reads version 2"),
        (b'{"apportion_snapshot":2,"nodes":[{"name":"a","gpus":[{"uuid":"g","model":0}]}]}', "unknown model"),
    ],
)
def test_x03_what_is_no_snapshot_is_refused(data: bytes, fix: str) -> None:
    with pytest.raises(InputError, match=fix):
        snapshot.load(data)


Path = tuple[str | int, ...]


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("slices", 0, 1, 3), -1, "slices[0].placement.size"),
        (("slices", 0, 1, 2), -1, "slices[0].placement.start"),
        (("models", 0, "units"), 10**12, "models[0].units"),
        (("models", 0, "profiles", 0, "size"), -1, "models[0].profiles[1g.5gb].size"),
        (("models", 0, "profiles", 0, "name"), "1g.5gb+me", "models[0].profiles[1g.5gb+me].name"),
    ],
)
def test_x03_t02_geometry_that_cannot_be_is_refused_by_field(
    cluster: Cluster, path: Path, value: object, field: str
) -> None:
    found = json.loads(snapshot.save(seen(cluster)))
    inner = found
    for step in path[:-1]:
        inner = inner[step]
    assert path[-1] in inner or isinstance(path[-1], int)
    inner[path[-1]] = value
    with pytest.raises(InputError) as refused:
        snapshot.load(json.dumps(found).encode())
    assert refused.value.field == f"snapshot.{field}"


def test_x03_a_snapshot_is_plain_json_with_a_version(cluster: Cluster) -> None:
    found = json.loads(snapshot.save(seen(cluster)))
    assert found["apportion_snapshot"] == snapshot.VERSION
    assert [node["name"] for node in found["nodes"]] == ["n1"]
    assert len(found["models"]) == 2
