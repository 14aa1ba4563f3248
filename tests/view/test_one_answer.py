"""In every state of a cluster scheduler, fallback, `why` and `top` count the same devices and give one answer.

Each stream is a random sequence of changes of a cluster, delivered to a scheduler's and to a fallback's view by
informers that run independently of each other. After every few steps both are compared with a view that reads the
cluster afresh.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from apportion.admission.fallback.occupancy import Occupancy, wants_mig
from apportion.admission.fallback.promises import Promise
from apportion.apis import names
from apportion.apis.identities import DeviceUUID
from apportion.apis.placements import SlicePlacement
from apportion.apis.pods import PodCondition, PodStatus
from apportion.apis.request import Request
from apportion.apis.shared_gpus import is_slot
from apportion.core import refusals
from apportion.core.explanations import messages
from apportion.core.fleet import Fleet
from apportion.core.ledger import GpuLedger
from apportion.core.node import NodeState
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.view import snapshot, why
from apportion.view.scene import scene
from apportion.view.view import View
from tests.builders import accelerators, nodes
from tests.builders.accelerators import CATALOG
from tests.view import by_hand, deciding
from tests.view.objects import CLAIMS, NODES, PODS, REPORTS, Cluster, Follower
from tests.view.streams import GPUS, STATIC, WANTED, Stream, claim, pod

FULL = os.environ.get("APPORTION_SOAK") == "1"
STREAMS = 5_000 if FULL else 200
STEPS = 40
WATCHED = 0.08  # of the streams: looked at after every single change
LOOK_EVERY = 8


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_x01_f04_s09_scheduler_fallback_why_and_top_give_one_answer() -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    met: Counter[str] = Counter()
    for number in range(STREAMS):
        play(random.Random(seed + number), f"stream {seed + number}", met)
    rare = {what: met[what] for what in OFTEN_ENOUGH if met[what] < STREAMS // 10}
    assert not rare, "the streams hardly contain these"


OFTEN_ENOUGH = (
    "whole GPU held",
    "reservation held",
    "no free place",
    "no free device",
    "volume rule",
    "in the way of promises only",
    "claims kept",
    "claims given up",
    "releasing",
    "top reason",
    "shared GPU",
    "GPU shared by several",
    "shared and reserved",
    "shared slot",
    "reserved elsewhere",
    "about to be bound",
    "no memory left",
)


def play(dice: random.Random, name: str, met: Counter[str]) -> None:
    cluster = Cluster()
    stream = Stream(cluster, dice)
    scheduler = Follower(cluster, View(CATALOG), dice)
    fallback = Follower(cluster, View(CATALOG, volumes=False), dice)
    occupancy = Occupancy(fallback.view)
    stream.begin()
    watch = position_moves(name) if dice.random() < WATCHED else lambda _: None
    for step in range(STEPS):
        stream.step()
        if dice.random() < 0.3:
            scheduler.catch_up(watch)  # while the other is behind
        if step % LOOK_EVERY == LOOK_EVERY - 1:
            scheduler.catch_up(watch)
            fallback.catch_up()
            look(cluster, scheduler.view, fallback.view, occupancy, dice, f"{name}, step {step}", met)


def position_moves(where: str) -> Callable[[View], None]:
    """Whatever changes the fleet or the picture moves the position of the log."""
    known: list[Any] = [-1, None]

    def watch(view: View) -> None:
        storage = repr((view.fleet.storage, sorted(view.fleet.namespaces.items())))
        now = (view.fleet.record(), scene(view), storage)
        assert known[0] != view.changes.position or known[1] == now, where
        known[:] = [view.changes.position, now]

    return watch


def look(
    cluster: Cluster,
    scheduler: View,
    fallback: View,
    occupancy: Occupancy,
    dice: random.Random,
    where: str,
    met: Counter[str],
) -> None:
    fresh, afresh = (afresh_view(cluster, dice, volumes=volumes) for volumes in (True, False))
    assert counted(scheduler.fleet) == counted(fresh.fleet), where
    assert counted(scheduler.fleet) == counted(fallback.fleet), where
    assert _sorted_storage(scheduler.fleet) == _sorted_storage(fresh.fleet), where
    for view in (scheduler, fallback):
        same_count_by_hand(cluster, view, where, met)
    same_answers_by_why(scheduler, where, met)
    same_picture_by_top(cluster, scheduler, where, met)
    named_slices(scheduler, where)
    same_when_saved_and_loaded(scheduler, where)
    same_answers_by_fallback(fallback, occupancy, afresh, list(promises(dice)), where, met)


def same_count_by_hand(cluster: Cluster, view: View, where: str, met: Counter[str]) -> None:
    """The fleet has what the objects say, counted without the view."""
    expected = by_hand.count(cluster)
    assert sorted(expected) == [node.name for node in view.fleet], where
    for name, count in expected.items():
        node = view.fleet.nodes[name]
        assert {resource: node.free(resource) for resource in count.free} == count.free, (where, name)
        assert sorted(node.gpus) == sorted(count.gpus), (where, name)
        assert sum(gpu.takes_whole for gpu in node.gpus.values()) == count.whole_left, (where, name)
        for uuid, device in count.gpus.items():
            ledger = node.gpus[uuid]
            assert ledger.state & ledger.grid.full == device.units, (where, uuid)
            assert (ledger.facts.mig, ledger.facts.healthy) == (device.mig, device.healthy), (where, uuid)
            same_shares(ledger, device, (where, uuid), met)
            if device.holder:
                assert not ledger.takes_whole, (where, uuid)
                met["whole GPU held" if device.whole else "reservation held"] += 1
    assert view.fleet.releasing == by_hand.releasing_pods(cluster), where
    met["releasing"] += len(view.fleet.releasing)
    claims = {key: held.releasing for key, held in view.fleet.slices.items() if held.owner}
    assert claims == by_hand.claims(cluster), where
    storage = view.fleet.storage
    if storage is not None:
        claimed = {key: facts.volume for key, facts in storage.volume_claims.items()}
        assert (claimed, {key: facts.claim for key, facts in storage.volumes.items()}) == by_hand.storage(cluster), (
            where
        )


def same_shares(ledger: GpuLedger, device: by_hand.Device, where: tuple[str, str], met: Counter[str]) -> None:
    assert ledger.shares == device.shares, where
    assert (ledger.memory_mib, ledger.facts.takes_shares) == (device.memory, device.takes_shares), where
    if ledger.whole is None and not ledger.slices:
        assert ledger.free_mib == device.free_mib, where
    met["shared GPU"] += bool(device.shares)
    met["GPU shared by several"] += len(device.shares) > 1
    met["shared and reserved"] += bool(device.shares) and bool(device.reservation)
    met["shared slot"] += bool(device.shares) and "/" in where[1]
    met["reserved elsewhere"] += not device.takes_shares


def _sorted_storage(fleet: Fleet) -> list[Any]:
    storage = fleet.storage
    assert storage is not None
    return [sorted(table.items(), key=lambda entry: entry[0]) for table in (storage.volume_claims, storage.volumes)]


def afresh_view(cluster: Cluster, dice: random.Random, *, volumes: bool) -> View:
    follower = Follower(cluster, View(CATALOG, volumes=volumes), dice)
    cluster.followers.remove(follower)
    follower.catch_up()
    return follower.view


def counted(fleet: Fleet) -> dict[str, Any]:
    """What everybody must agree on: which whole GPU a pod has is not known before its agent tells, how many are."""
    shares = [share for share in fleet.shares.values() if share.owner in fleet.pod_nodes]
    found: dict[str, Any] = {node.name: _counted(node) for node in fleet}
    return {"sharing": fleet.sharing, "shares": sorted(shares), **found}


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
            uuid: (gpu.facts, gpu.state, sorted(gpu.slices), sorted(gpu.strays), gpu.shares, gpu.reservation)
            for uuid, gpu in node.gpus.items()
        },
    }


def same_answers_by_why(view: View, where: str, met: Counter[str]) -> None:
    for waiting in view.waiting:
        if waiting.pod.uid in view.fleet.pod_nodes:
            met["about to be bound"] += 1
            continue
        before = view.fleet.record()
        answer = why.answer(view, waiting.pod, Policy())
        assert view.fleet.record() == before, where
        request, problem = waiting.reading
        if waiting.pod.spec.scheduler_name not in names.OUR_SCHEDULERS:
            assert answer.state is why.PodState.FOREIGN, where
        elif problem is not None or request is None:
            assert answer.state is why.PodState.INVALID, where
        else:
            decided = deciding.node_or_sentence(view, request)
            assert view.fleet.record() == before, where
            failed = view.shares.failed_request_of(waiting.pod.uid)
            if failed is not None and decided[0]:  # there is a place, but the last attempt to bind the pod failed
                assert failed.status.reason in answer.sentence, (where, answer)
                met["failed request"] += 1
                continue
            assert (answer.node, answer.sentence if not answer.node else "") == decided, (where, answer)
            met.update(_kinds(view, request, answer))


def _kinds(view: View, request: Request, answer: why.Answer) -> Iterator[str]:
    codes = set()
    if answer.refusal is not None:
        codes = {answer.refusal.code, *(group.code for group in answer.refusal.groups)}
    if view.fleet.holds(request.uid) and not request.gated:
        yield "claims kept" if answer.node else "claims given up"
    yield from (
        word for code, word in ((Code.NO_PLACE, "no free place"), (Code.NO_DEVICE, "no free device")) if code in codes
    )
    if request.rules.volume_claims:
        yield "volume rule"
    if {Code.NO_MEMORY, Code.NO_FRACTION, Code.NO_MEMORY_ON_SEVERAL} & set(codes):
        yield "no memory left"


def same_picture_by_top(cluster: Cluster, view: View, where: str, met: Counter[str]) -> None:
    expected = by_hand.count(cluster)
    drawn = scene(view)
    assert sorted(drawn.nodes) == [node.name for node in view.fleet if node.gpus], where
    for node in view.fleet:
        for gpu in drawn.nodes.get(node.name, ()):
            ledger = node.gpus[DeviceUUID(gpu.device)]
            assert gpu.healthy == ledger.facts.healthy, where
            if GPUS[node.name][:1] == ("static",):
                assert len(gpu.slices) == sum(STATIC.values()), where
                continue
            taken = sorted((piece.start, piece.size) for piece in gpu.slices)
            assert taken == deciding.places(ledger), where
            shown = bool(gpu.owner or gpu.reservation)
            assert shown == ledger.held or (shown and ledger.shares), where  # its reservation may be elsewhere
            device = expected[node.name].gpus[gpu.device]
            if device.holder:
                assert device.whole or ledger.whole is None, where
                assert (gpu.owner if device.whole else gpu.reservation) == device.holder, where
            if ledger.facts.measured:
                assert sum(share.mib for share in gpu.shares) == gpu.shared_mib == ledger.shared_mib, where
        if GPUS[node.name]:
            reported = any(not is_slot(gpu) for gpu in node.gpus)
            assert (drawn.notes.get(node.name) == "the agent is not ready") == (reported and not node.ready), where
    assert drawn.waiting == sorted(by_hand.pending(cluster).items()), where
    met["top reason"] += sum(reason.startswith("told") for _, reason in drawn.waiting)


def named_slices(view: View, where: str) -> None:
    """Who holds a static slice is drawn as the agent reports it."""
    drawn = {gpu.uuid: gpu for gpus in scene(view).nodes.values() for gpu in gpus}
    for report in view.accelerators:
        for gpu in report.status.gpus:
            if gpu.fixed and gpu.uuid in drawn:
                owners = [
                    f"default/{piece.pod_uid.removeprefix('uid-')}" if view.pods.get(piece.pod_uid) else piece.pod_uid
                    for piece in gpu.fixed
                ]
                assert [piece.owner for piece in drawn[gpu.uuid].slices] == owners, where


def same_when_saved_and_loaded(view: View, where: str) -> None:
    loaded = snapshot.load(snapshot.save(view), CATALOG)
    assert loaded.fleet.record() == view.fleet.record(), where
    there = view.fleet.pod_nodes
    requests = [each.reading.request for each in view.waiting if each.reading.problem is None]
    waiting = [request for request in loaded.waiting if request.uid not in there]
    assert waiting == [request for request in requests if request is None or request.uid not in there], where
    for request in waiting[:2]:
        assert deciding.decided(loaded.fleet, request) == deciding.decided(view.fleet, request), where


def same_answers_by_fallback(
    view: View, occupancy: Occupancy, afresh: View, promised: list[Promise], where: str, met: Counter[str]
) -> None:
    """What fallback remembers equals what it would work out afresh, and what the scheduler would decide."""
    before, reference = view.fleet.record(), Occupancy(afresh)
    wanted = [new_request(asked) for asked in WANTED if _mig(asked)]
    with occupancy.assumed(()):
        unpromised = {node.name: _left(node) for node in view.fleet}
        fitting = [_has_place(occupancy, request) for request in wanted]
        assert fitting == [deciding.fits(view.fleet, request) for request in wanted], where
    with occupancy.assumed(promised), reference.assumed(promised):
        assert counted(view.fleet) == counted(afresh.fleet), where
        promises_are_held(view.fleet, unpromised, promised, where)
        for request, fits in zip(wanted, fitting, strict=True):
            fits_now = _has_place(occupancy, request)
            assert not fits_now or fits, (where, request.resources)
            assert occupancy.fits_but_for_promises(request) == (fits and bool(promised)), (where, request.resources)
            met["in the way of promises only"] += fits and not fits_now
    assert view.fleet.record() == before, where
    mark = view.fleet.checkpoint()
    for request in sorted(_unbound(view), key=lambda request: request.created):
        assumed = occupancy._assumed.get(request.uid)
        assert (assumed is not None) == deciding.fits(view.fleet, request), (where, request.name)
        if assumed is not None:
            assumed.apply(view.fleet)
    view.fleet.rollback(mark)


def _has_place(occupancy: Occupancy, request: Request) -> bool:
    mark = occupancy.fleet.checkpoint()
    found = occupancy.place(request) is not None
    occupancy.fleet.rollback(mark)
    return found


def _left(node: NodeState) -> tuple[dict[str, int], dict[str, int]]:
    """What is left of each resource, and the taken units of each GPU."""
    assert node.facts is not None
    taken = {uuid: gpu.state & gpu.grid.full for uuid, gpu in node.gpus.items()}
    return {name: node.free(name) for name in node.facts.allocatable}, taken


def promises_are_held(fleet: Fleet, before: dict[str, Any], promised: list[Promise], where: str) -> None:
    """Each promise takes its resources and its units from what was left without it, and nothing else."""
    for node in fleet:
        here = [promise for promise in promised if promise.node == node.name]
        free, taken = before[node.name]
        cost = Counter({"pods": len(here)})
        units = dict(taken)
        for promise in here:
            cost.update(promise.resources)
            for piece in promise.pieces:
                if piece.gpu in units:
                    units[piece.gpu] |= ((1 << piece.size) - 1) << piece.start
        assert _left(node) == ({name: amount - cost[name] for name, amount in free.items()}, units), where


def promises(dice: random.Random) -> Iterator[Promise]:
    for number in range(dice.choice((0, 1, 2, 3))):
        profile, start, size = dice.choice((("1g.5gb", dice.randrange(7), 1), ("7g.40gb", 0, 8), ("3g.20gb", 4, 4)))
        if dice.random() < 0.6:
            node = dice.choice(("n1", "n2", "n3"))
            piece = SlicePlacement(f"GPU-{node}-0", profile, start, size)
            yield Promise(str(number), 0.0, "k", node, resources={f"mig.das.com/{profile}": 1}, pieces=(piece,))
        else:
            static, count = dice.choice((("nvidia.com/mig-2g.10gb", 1), ("nvidia.com/mig-2g.10gb", 3)))
            yield Promise(str(number), 0.0, "k", "n4", resources={static: count})


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


class Answers(NamedTuple):
    """What the four say about one pending pod."""

    scheduler: tuple[str, str]  # node, or a sentence
    why: tuple[str, str]
    fallback: str  # node, if any
    another: bool  # fallback has a place for one more pod of the kind
    top: tuple[str, list[tuple[int, int]], list[str]]  # note of the node, its slices, who waits


def ask_all(cluster: Cluster) -> Answers:
    scheduler, fallback = (afresh_view(cluster, random.Random(1), volumes=volumes) for volumes in (True, False))
    assert counted(scheduler.fleet) == counted(fallback.fleet)
    (waiting,) = scheduler.waiting
    assert waiting.reading.request is not None
    answer = why.answer(scheduler, waiting.pod, Policy())
    occupancy = Occupancy(fallback)
    with occupancy.assumed(()):
        assumed = occupancy._assumed.get(waiting.pod.metadata.uid)
        another = occupancy.place(new_request(SLICE)) is not None
    drawn = scene(scheduler)
    (gpu,) = drawn.nodes["n1"]
    return Answers(
        deciding.node_or_sentence(scheduler, waiting.reading.request),
        (answer.node, "" if answer.node else answer.sentence),
        assumed.node if assumed is not None else "",
        another,
        (
            drawn.notes.get("n1", ""),
            [(piece.start, piece.size) for piece in gpu.slices],
            [pod for pod, _ in drawn.waiting],
        ),
    )


def test_x01_a_pod_with_a_dead_leaders_claim_on_a_cordoned_node(cluster: Cluster) -> None:
    waits = pod("p", SLICE)
    cluster.put(PODS, waits)
    cluster.put(CLAIMS, claim(waits, "1g.5gb", node="n1", gpu="GPU-n1", start=0))
    placed = Answers(("n1", ""), ("n1", ""), "n1", another=True, top=("", [(0, 1)], ["default/p"]))
    assert ask_all(cluster) == placed
    cluster.change(NODES, "n1", lambda obj: obj["spec"].update(unschedulable=True))
    found = ask_all(cluster)
    assert "the claims of the pod cannot be used: node n1 is cordoned." in found.scheduler[1]
    assert found == Answers(
        found.scheduler, found.scheduler, "", another=False, top=("cordoned", [(0, 1)], ["default/p"])
    )


def test_x01_why_says_what_the_last_attempt_of_the_scheduler_found_out(cluster: Cluster) -> None:
    cluster.put(PODS, pod("p", SLICE))
    view = afresh_view(cluster, random.Random(1), volumes=True)
    (waiting,) = view.waiting
    assert waiting.reading.request is not None
    assert why.answer(view, waiting.pod, Policy()).state is why.PodState.FITS
    for code in (Code.BINDING_FAILED, Code.BINDING_GIVEN_UP):
        told = messages.of(refusals.of_pod(waiting.reading.request, code, "the server is busy", 3))
        status = PodStatus(conditions=[PodCondition(type="PodScheduled", status="False", message=told)])
        answer = why.answer(view, msgspec.structs.replace(waiting.pod, status=status), Policy())
        assert (answer.state, answer.sentence, answer.layer) == (why.PodState.WAITING, told, "placement")


def test_s09_a_node_whose_agent_pod_is_not_ready(cluster: Cluster) -> None:
    cluster.put(PODS, pod("p", SLICE))
    assert ask_all(cluster) == Answers(("n1", ""), ("n1", ""), "n1", another=True, top=("", [], ["default/p"]))
    cluster.put(PODS, accelerators.agent_pod("n1", ready=False, uid="agent"))
    found = ask_all(cluster)
    assert found.scheduler[0] == ""
    assert "agent" in found.scheduler[1]
    assert found == Answers(
        found.scheduler, found.scheduler, "", another=False, top=("the agent is not ready", [], ["default/p"])
    )
