"""What the view makes of reported devices and of claims that no GPU can have."""

from __future__ import annotations

import random

import pytest
from rich.console import Console

from apportion.apis import names
from apportion.apis.installation import Installation
from apportion.cli.drawing import Painter
from apportion.core.policies import Policy
from apportion.view import snapshot, why
from apportion.view.scene import scene
from apportion.view.view import View
from tests.builders import accelerators, nodes
from tests.view.objects import CLAIMS, NODES, PODS, REPORTS, Cluster, Follower
from tests.view.streams import claim, pod
from tests.view.test_changes import cluster, report

__all__ = ["cluster"]


def test_s09_x04_a_gpu_that_a_reservation_pod_holds_is_not_free() -> None:
    cluster = Cluster()
    cluster.put(NODES, nodes.node("n1", resources={names.NVIDIA_GPU: 3}))
    cluster.put(REPORTS, report("uid-r", "", "reservation"))
    cluster.put(PODS, accelerators.agent_pod("n1", uid="agent"))
    held = pod("r", {names.NVIDIA_GPU: 1}, node="n1", namespace=Installation.reservation_namespace)
    cluster.put(PODS, held)
    cluster.put(PODS, pod("waits", {names.NVIDIA_GPU: 2}))
    follower = Follower(cluster, View(), random.Random(1))
    follower.catch_up()
    view = follower.view
    _, first, second = scene(view).nodes["n1"]
    assert (first.owner, first.reservation) == ("", f"{Installation.reservation_namespace}/r")
    assert (second.owner, second.reservation) == ("", "")
    (waiting,) = view.waiting
    assert "needs 2, 1 of 2 in use" in why.answer(view, waiting.pod, Policy()).sentence
    assert snapshot.load(snapshot.save(view)).fleet.record() == view.fleet.record()
    before = view.fleet.record()
    mark = view.fleet.checkpoint()
    view.fleet.remove_pod("uid-r")
    assert view.fleet.nodes["n1"].gpus["GPU-1"].takes_whole
    view.fleet.rollback(mark)
    assert view.fleet.record() == before
    cluster.put(REPORTS, report("", "uid-r", "reservation"))
    follower.catch_up()
    assert [bool(gpu.reservation) for gpu in scene(view).nodes["n1"]] == [False, False, True]
    cluster.remove(PODS, f"{Installation.reservation_namespace}/r")
    follower.catch_up()
    assert not any(gpu.owner for gpu in scene(view).nodes["n1"])


def test_x04_a_pod_whose_gpu_is_only_assumed_gets_another_one_once_that_gpu_has_a_claim() -> None:
    cluster = Cluster()
    cluster.put(NODES, nodes.node("n1", resources={names.NVIDIA_GPU: 2}))
    gpus = [accelerators.gpu(f"GPU-{number}", mig=False, healthy=True) for number in range(2)]
    cluster.put(REPORTS, accelerators.accelerator("n1", gpus))
    cluster.put(PODS, pod("whole", {names.NVIDIA_GPU: 1}, node="n1"))
    follower = Follower(cluster, View(), random.Random(1))
    follower.catch_up()
    node = follower.view.fleet.nodes["n1"]
    assert node.wholes == {"uid-whole": ("GPU-0",)}
    made = claim(pod("sliced", {"mig.das.com/1g.5gb": 1}), "1g.5gb", node="n1", gpu="GPU-0", start=0)
    cluster.put(CLAIMS, made)
    follower.catch_up()
    assert node.wholes == {"uid-whole": ("GPU-1",)}
    assert not any(gpu.takes_whole for gpu in node.gpus.values())
    cluster.remove(CLAIMS, f"{names.DAS_NAMESPACE}/{made['metadata']['name']}")
    follower.catch_up()
    assert [gpu.takes_whole for gpu in node.gpus.values()] == [True, False]


@pytest.mark.parametrize(("start", "size"), [(0, 10**12), (10**12, 1), (3, 10**12)])
def test_t02_a_claim_of_any_size_is_read_drawn_and_given_up(cluster: Cluster, start: int, size: int) -> None:
    waits = pod("b", {"mig.das.com/1g.5gb": 1})
    odd = claim(waits, "1g.5gb", node="n1", gpu="GPU-0", start=0)
    odd["spec"]["migPlacement"] = {"start": start, "size": size}
    cluster.put(CLAIMS, odd)
    cluster.put(PODS, waits)
    follower = Follower(cluster, View(), random.Random(1))
    follower.catch_up()
    (asked,) = (each.pod for each in follower.view.waiting if each.pod.metadata.name == "b")
    answer = why.answer(follower.view, asked, Policy())
    assert "is not a legal placement" in answer.sentence
    text = Console(width=200, record=True)
    text.print(*Painter().grids(scene(follower.view).nodes))
    assert len(text.export_text()) < 10_000
    loaded = snapshot.load(snapshot.save(follower.view))
    assert loaded.fleet.record() == follower.view.fleet.record()


def test_x05_claims_for_one_placement_are_drawn_in_the_same_order_whenever_they_came(cluster: Cluster) -> None:
    rivals = [pod(name, {"mig.das.com/1g.5gb": 1}) for name in ("x", "y")]
    for rival in rivals:
        cluster.put(PODS, rival)
    claims = [claim(rival, "1g.5gb", node="n1", gpu="GPU-0", start=0) for rival in rivals]
    views = []
    for order in (claims, claims[::-1]):
        follower = Follower(cluster, View(), random.Random(1))
        follower.catch_up()
        for each in order:
            follower.hear(CLAIMS, None, each)
        follower.catch_up()
        views.append(scene(follower.view))
    assert views[0] == views[1]


def test_t04_an_agent_that_reports_a_gpu_of_another_node_does_not_get_it() -> None:
    cluster = Cluster()
    for number, name in enumerate(("n1", "n2"), 1):
        cluster.put(NODES, nodes.node(name))
        made = accelerators.accelerator(name)
        made["metadata"]["creationTimestamp"] = f"2026-01-0{number}T00:00:00Z"
        cluster.put(REPORTS, made)
    follower = Follower(cluster, View(), random.Random(1))
    follower.catch_up()
    before = follower.view.fleet.record()
    liar = accelerators.accelerator("n2", [accelerators.gpu("GPU-n2"), accelerators.gpu("GPU-n1")])
    liar["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    cluster.put(REPORTS, liar)
    follower.catch_up()
    assert follower.view.fleet.gpu_nodes == {"GPU-n1": "n1", "GPU-n2": "n2"}
    assert follower.view.fleet.record() == before
    later = Follower(cluster, View(), random.Random(2))
    later.catch_up()
    assert later.view.fleet.record() == before
    cluster.remove(REPORTS, f"{names.DAS_NAMESPACE}/n1")
    follower.catch_up()
    assert follower.view.fleet.gpu_nodes == {"GPU-n1": "n2", "GPU-n2": "n2"}


def test_t04_a_claim_that_names_a_gpu_of_another_node_occupies_nothing_there() -> None:
    cluster = Cluster()
    for name in ("n1", "n2"):
        cluster.put(NODES, nodes.node(name))
        cluster.put(REPORTS, accelerators.accelerator(name))
    moved = pod("a", {"mig.das.com/1g.5gb": 1}, node="n2")
    cluster.put(PODS, moved)
    cluster.put(CLAIMS, claim(moved, "1g.5gb", node="n2", gpu="GPU-n1", start=0))
    follower = Follower(cluster, View(), random.Random(1))
    follower.catch_up()
    fleet = follower.view.fleet
    assert not fleet.nodes["n1"].gpus["GPU-n1"].slices
    assert snapshot.load(snapshot.save(follower.view)).fleet.record() == fleet.record()
    cluster.remove(CLAIMS, next(iter(cluster.all(CLAIMS))))
    follower.catch_up()
    assert not fleet.slices
