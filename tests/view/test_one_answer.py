"""In every state of a cluster scheduler, fallback, `why` and `top` count the same devices and give one answer.

Each stream is a random sequence of changes of a cluster, delivered to a scheduler's and to a fallback's view by
informers that run independently of each other. After every few steps both are compared with a view that reads the
cluster afresh.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from apportion.admission.fallback.occupancy import Occupancy, wants_mig
from apportion.admission.fallback.promises import Promise
from apportion.apis import names
from apportion.apis.placements import SlicePlacement
from apportion.apis.request import Request
from apportion.core.fleet import Fleet
from apportion.core.node import NodeState
from apportion.core.policies import Policy
from apportion.view import snapshot, why
from apportion.view.scene import scene
from apportion.view.view import View
from tests.builders import accelerators, nodes
from tests.builders.accelerators import CATALOG
from tests.view import deciding
from tests.view.streams import CLAIMS, GPUS, NODES, PODS, REPORTS, STATIC, WANTED, Cluster, Follower, Stream, claim, pod

FULL = os.environ.get("APPORTION_SOAK") == "1"
STREAMS = 5_000 if FULL else 200
STEPS = 40
LOOK_EVERY = 8


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_x01_f04_s09_scheduler_fallback_why_and_top_give_one_answer() -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    for number in range(STREAMS):
        play(random.Random(seed + number), f"stream {seed + number}")


def play(dice: random.Random, name: str) -> None:
    cluster = Cluster()
    stream = Stream(cluster, dice)
    scheduler = Follower(cluster, View(CATALOG), dice)
    fallback = Follower(cluster, View(CATALOG, volumes=False), dice)
    occupancy = Occupancy(fallback.view)
    stream.begin()
    for step in range(STEPS):
        stream.step()
        if dice.random() < 0.3:
            scheduler.catch_up()  # while the other is behind
        if step % LOOK_EVERY == LOOK_EVERY - 1:
            before = (scheduler.view.changes.position, counted(scheduler.view.fleet))
            scheduler.catch_up()
            fallback.catch_up()
            look(cluster, scheduler.view, fallback.view, occupancy, dice, f"{name}, step {step}")
            assert before[0] != scheduler.view.changes.position or before[1] == counted(scheduler.view.fleet)


def look(
    cluster: Cluster, scheduler: View, fallback: View, occupancy: Occupancy, dice: random.Random, where: str
) -> None:
    fresh, afresh = (afresh_view(cluster, dice, volumes=volumes) for volumes in (True, False))
    assert counted(scheduler.fleet) == counted(fresh.fleet), where
    assert counted(scheduler.fleet) == counted(fallback.fleet), where
    same_answers_by_why(scheduler, where)
    same_picture_by_top(scheduler, where)
    named_holders(scheduler, where)
    same_when_saved_and_loaded(scheduler, where)
    same_answers_by_fallback(fallback, occupancy, afresh, list(promises(dice)), where)


def afresh_view(cluster: Cluster, dice: random.Random, *, volumes: bool) -> View:
    follower = Follower(cluster, View(CATALOG, volumes=volumes), dice)
    cluster.followers.remove(follower)
    follower.catch_up()
    return follower.view


def counted(fleet: Fleet) -> dict[str, Any]:
    """What everybody must agree on: which whole GPU a pod has is not known before its agent tells, how many are."""
    return {node.name: _counted(node) for node in fleet}


def _counted(node: NodeState) -> dict[str, Any]:
    assert node.facts is not None
    resources = {*node.facts.allocatable, *node.used}
    return {
        "facts": node.facts,
        "takes slices": node.ready,
        "free": {name: node.free(name) for name in sorted(resources)},
        "pods": sorted(node.pods),
        "whole": sum(gpu.whole is not None for gpu in node.gpus.values()),
        "gpus": {
            uuid: (gpu.facts.healthy, gpu.facts.mig, gpu.state, sorted(gpu.slices), sorted(gpu.strays))
            for uuid, gpu in node.gpus.items()
        },
    }


def same_answers_by_why(view: View, where: str) -> None:
    for waiting in view.waiting:
        before = view.fleet.record()
        answer = why.answer(view, waiting.pod, Policy())
        assert view.fleet.record() == before, where
        request, problem = waiting.reading
        if waiting.pod.spec.scheduler_name not in names.OUR_SCHEDULERS:
            assert answer.state is why.PodState.FOREIGN, where
        elif problem is not None or request is None:
            assert answer.state is why.PodState.INVALID, where
        else:
            decided = deciding.node_or_sentence(view.fleet, request)
            assert view.fleet.record() == before, where
            assert (answer.node, answer.sentence if not answer.node else "") == decided, (where, answer)


def same_picture_by_top(view: View, where: str) -> None:
    drawn = scene(view)
    assert sorted(drawn.nodes) == [node.name for node in view.fleet if node.gpus], where
    for node in view.fleet:
        for gpu in drawn.nodes.get(node.name, ()):
            ledger = node.gpus[gpu.uuid]
            assert gpu.healthy == ledger.facts.healthy, where
            if GPUS[node.name][0] == "static":
                assert len(gpu.slices) == sum(STATIC.values()), where
                continue
            taken = sorted((piece.start, piece.size) for piece in gpu.slices)
            assert taken == deciding.places(ledger), where
            assert bool(gpu.owner) == (ledger.whole is not None), where
        if node.gpus:
            assert (drawn.notes.get(node.name) == "the agent is not ready") == (not node.ready), where
    ours = [each.pod for each in view.waiting if each.pod.spec.scheduler_name in names.OUR_SCHEDULERS]
    assert [pod for pod, _ in drawn.waiting] == sorted(f"default/{pod.metadata.name}" for pod in ours), where


def named_holders(view: View, where: str) -> None:
    """Who holds a whole GPU or a static slice is drawn as the agent reports it."""
    drawn = {gpu.uuid: gpu for gpus in scene(view).nodes.values() for gpu in gpus}
    for report in view.accelerators:
        for gpu in report.status.gpus:
            for holder in gpu.holders:
                if view.fleet.pod_nodes.get(holder.pod_uid) == report.metadata.name and gpu.uuid in drawn:
                    assert drawn[gpu.uuid].owner == deciding.name_of(holder.pod_uid), where
            if gpu.fixed and gpu.uuid in drawn:
                owners = [
                    deciding.name_of(piece.pod_uid) if view.pods.get(piece.pod_uid) else piece.pod_uid
                    for piece in gpu.fixed
                ]
                assert [piece.owner for piece in drawn[gpu.uuid].slices] == owners, where


def same_when_saved_and_loaded(view: View, where: str) -> None:
    loaded = snapshot.load(snapshot.save(view), CATALOG)
    assert loaded.fleet.record() == view.fleet.record(), where
    requests = [each.reading.request for each in view.waiting if each.reading.problem is None]
    assert list(loaded.waiting) == requests, where
    for request in loaded.waiting[:2]:
        assert deciding.decided(loaded.fleet, request) == deciding.decided(view.fleet, request), where


def same_answers_by_fallback(
    view: View, occupancy: Occupancy, afresh: View, promised: list[Promise], where: str
) -> None:
    """What fallback remembers equals what it would work out afresh, and what the scheduler would decide."""
    before, reference = view.fleet.record(), Occupancy(afresh)
    with occupancy.assumed(promised), reference.assumed(promised):
        assert counted(view.fleet) == counted(afresh.fleet), where
    assert view.fleet.record() == before, where
    with occupancy.assumed(()):
        for asked in filter(_mig, WANTED):
            mark = view.fleet.checkpoint()
            found = occupancy.place(new_request(asked)) is not None
            view.fleet.rollback(mark)
            assert found == deciding.fits(view.fleet, new_request(asked)), (where, asked)
    mark = view.fleet.checkpoint()
    for request in sorted(_unbound(view), key=lambda request: request.created):
        assumed = occupancy._assumed.get(request.uid)
        assert (assumed is not None) == deciding.fits(view.fleet, request), (where, request.name)
        if assumed is not None:
            assumed.apply(view.fleet)
    view.fleet.rollback(mark)


def promises(dice: random.Random) -> Iterator[Promise]:
    for number in range(dice.choice((0, 1, 2))):
        if dice.random() < 0.5:
            piece = SlicePlacement("GPU-n1-0", "1g.5gb", dice.randrange(7), 1)
            yield Promise(str(number), 0.0, "k", "n1", resources={"mig.das.com/1g.5gb": 1}, pieces=(piece,))
        else:
            yield Promise(str(number), 0.0, "k", "n4", resources={"nvidia.com/mig-2g.10gb": 1})


def new_request(asked: dict[str, int]) -> Request:
    return deciding.read(pod("new", asked))


def _mig(asked: dict[str, int]) -> bool:
    return any("mig" in name for name in asked)


def _unbound(view: View) -> Iterator[Request]:
    for waiting in view.waiting:
        request, problem = waiting.reading
        refused = problem is not None and waiting.pod.spec.scheduler_name in names.OUR_SCHEDULERS
        if request is not None and not refused and wants_mig(request):
            yield deciding.plain(request)


# By name


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.put(PODS, accelerators.agent_pod("n1", uid="agent"))
    made.put(NODES, nodes.node("n1", resources=nodes.slice_devices(1)))
    made.put(REPORTS, accelerators.accelerator("n1", agent_uid="agent"))
    return made


SLICE = {"mig.das.com/1g.5gb": 1}


def test_x01_a_pod_with_a_dead_leaders_claim_on_a_cordoned_node(cluster: Cluster) -> None:
    waits = pod("p", SLICE)
    cluster.put(PODS, waits)
    cluster.put(CLAIMS, claim(waits, "1g.5gb", node="n1", gpu="GPU-n1", start=0))
    view = afresh_view(cluster, random.Random(1), volumes=True)
    (waiting,) = view.waiting
    assert why.answer(view, waiting.pod, Policy()).node == "n1"
    cluster.change(NODES, "n1", lambda obj: obj["spec"].update(unschedulable=True))
    view = afresh_view(cluster, random.Random(1), volumes=True)
    (waiting,) = view.waiting
    assert waiting.reading.request is not None
    answer = why.answer(view, waiting.pod, Policy())
    assert answer.state is why.PodState.WAITING
    assert "node n1 is no longer suitable (Cordoned)" in answer.sentence
    assert deciding.node_or_sentence(view.fleet, waiting.reading.request) == ("", answer.sentence)


def test_s09_a_node_whose_agent_pod_is_not_ready(cluster: Cluster) -> None:
    cluster.put(PODS, accelerators.agent_pod("n1", ready=False, uid="agent"))
    cluster.put(PODS, pod("p", SLICE))
    scheduler, fallback = (afresh_view(cluster, random.Random(1), volumes=volumes) for volumes in (True, False))
    assert counted(scheduler.fleet) == counted(fallback.fleet)
    (waiting,) = scheduler.waiting
    answer = why.answer(scheduler, waiting.pod, Policy())
    assert (answer.state, answer.node) == (why.PodState.WAITING, "")
    occupancy = Occupancy(fallback)
    with occupancy.assumed(()):
        assert occupancy.place(new_request(SLICE)) is None
    assert scene(scheduler).notes == {"n1": "the agent is not ready"}
