"""What must hold in every cluster and at every time, whatever comes."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from apportion.apis.identities import PodUID, QueueName
from apportion.apis.request import Request
from apportion.core import gangs, group_decision, group_turns
from apportion.core.evictions import room, trials
from apportion.core.evictions.room import Consolidation
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.operations import Evict, KeepPlaces
from apportion.core.placement.selection import best_placement
from apportion.core.policies import Policy
from apportion.core.queues import gates
from apportion.core.queues.amounts import NOTHING, RESOURCES, Amounts
from apportion.core.queues.shares import Shares
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from tests.core.evictions.streams import Stream

SOAK = os.environ.get("APPORTION_SOAK") == "1"
STREAMS = 2_000 if SOAK else 60
MOST_CYCLES = 60
EXTRA_CYCLES = 5
FEATURES = ("evicted", "moved", "whole group", "spare pod", "budget", "slice", "share", "static", "gang taker")

make_room = room.make_room


@pytest.mark.soak
def test_q06_nothing_is_evicted_in_vain_and_all_comes_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    met: Counter[str] = Counter()
    for number in range(STREAMS):
        check_stream(seed + number, met, monkeypatch)
    rare = {what: met[what] for what in FEATURES if met[what] < STREAMS // 100}  # 0 in a short run
    assert not rare, "the streams hardly contain these"


def check_stream(seed: int, met: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(seed)
    where = f"stream {seed}"

    monkeypatch.setattr(room, "make_room", partial(checked_room, where=where, met=met))
    for _ in range(stream.rng.randint(3, 6)):
        for _ in range(stream.rng.randint(2, 8)):
            stream.arrive()
        if stream.rng.random() < 0.3:
            stream.end()
        for _ in range(MOST_CYCLES):
            done = stream.simulation.cycle()
            check_limits(stream.fleet, where)
            if not done:
                break
        else:
            raise AssertionError(f"{where}: no rest after {MOST_CYCLES} cycles")
    for _ in range(EXTRA_CYCLES):
        assert not stream.simulation.cycle(), f"{where}: something changed after rest"
    check_work_conserving(stream, where)


def check_limits(fleet: Fleet, where: str) -> None:
    """No queue uses more than its limit, nor more by non-preemptible pods than its quota; counted anew."""
    used: dict[tuple[QueueName, bool], Amounts] = {}
    charges = [fleet.accounts.charge(uid) for uid in fleet.pod_nodes]
    charges += [each.charge for each in fleet.reservations.values()]
    for charge in charges:
        for name in fleet.accounts.tree.path(charge.queue) if charge is not None else ():
            assert charge is not None
            for fixed in (False, True) if charge.fixed else (False,):
                used[name, fixed] = used.get((name, fixed), NOTHING).plus(charge.amounts)
    for queue in fleet.accounts.tree.queues.values():
        for number, resource in enumerate(RESOURCES):
            allowance = queue.allowances[number]
            now, hard = (used.get((queue.name, fixed), NOTHING)[number] for fixed in (False, True))
            assert allowance.limit < 0 or now <= allowance.limit, f"{where}: {queue.name} {resource} {now}"
            assert allowance.quota < 0 or hard <= allowance.quota, f"{where}: {queue.name} {resource} {hard} fixed"


def checked_room(
    fleet: Fleet,
    group: Group,
    policy: Policy,
    shares: Shares,
    running: RunningGroups,
    consolidation: Consolidation,
    *,
    where: str,
    met: Counter[str],
) -> Statement | None:
    groups = {key: list(uids) for key, uids in fleet.group_pods.items()}
    leaving = set(fleet.releasing)
    before = fleet.record()
    statement = make_room(fleet, group, policy, shares, running, consolidation)
    if statement is None:
        assert fleet.record() == before, where
        return None
    gone = [each.request for each in statement.operations if isinstance(each, Evict)]
    moves = [pod for each in statement.operations if isinstance(each, KeepPlaces) for pod in each.moved]
    about = f"{where}: {[pod.name for pod in gone]} for {group.name}"
    assert all(pod.preemptible for pod in gone), f"{about}: not preemptible"
    assert all(pod.owner is not None for pod in moves), f"{about}: a bare pod was moved"
    _check_minimums(fleet, groups, leaving, gone, moves, about)
    _check_budgets(fleet, about)
    met.update(_features(fleet, group, gone, moves))
    statement.undo(fleet)
    assert fleet.record() == before, about
    for left_out in _units(fleet, groups, leaving, gone):
        assert not _fits_without(fleet, group, policy, gone, moves, left_out), (
            f"{about}: {[pod.name for pod in left_out]} need not go"
        )
    statement.apply(fleet)
    return statement


def _check_minimums(
    fleet: Fleet,
    groups: dict[str, list[str]],
    leaving: set[str],
    gone: list[Request],
    moves: list[Request],
    about: str,
) -> None:
    """A group that loses pods keeps its minimum, or ends."""
    lost = Counter(pod.group_key for pod in gone) - Counter(pod.group_key for pod in moves)
    for key in lost:
        gang = fleet.gangs[key]
        names = {pod.uid for pod in gone} - {pod.uid for pod in moves}
        left = [fleet.nodes[fleet.pod_nodes[uid]].pods[uid] for uid in groups[key] if uid not in leaving | names]
        parts = Counter(pod.subgroup for pod in left)
        enough = len(left) >= gang.minimum and all(parts[each.name] >= each.minimum for each in gang.subgroups)
        assert not left or enough, f"{about}: group {key} is left in halves"


def _check_budgets(fleet: Fleet, about: str) -> None:
    asked: Counter[str] = Counter()
    for uid in fleet.releasing:
        assert len(fleet.budgets.of(uid)) < 2, f"{about}: {uid} is under two budgets"
        asked.update(fleet.budgets.of(uid))
    for budget, count in asked.items():
        assert count <= fleet.budgets.allowed(budget), f"{about}: {count} pods of {budget}"


def _units(
    fleet: Fleet, groups: dict[str, list[str]], leaving: set[str], gone: list[Request]
) -> Iterator[list[Request]]:
    """What can be left out: a whole group that goes, or a single pod."""
    by_group: dict[str, list[Request]] = {}
    for pod in gone:
        by_group.setdefault(pod.group_key, []).append(pod)
    for key, pods in by_group.items():
        yield pods
        gang, running = fleet.gangs[key], [uid for uid in groups[key] if uid not in leaving]
        for pod in pods:
            stay = [uid for uid in running if uid == pod.uid or uid not in {each.uid for each in pods}]
            parts = Counter(fleet.nodes[fleet.pod_nodes[PodUID(uid)]].pods[PodUID(uid)].subgroup for uid in stay)
            if len(stay) >= gang.minimum and all(parts[each.name] >= each.minimum for each in gang.subgroups):
                yield [pod]


def _fits_without(
    fleet: Fleet, group: Group, policy: Policy, gone: list[Request], moves: list[Request], left_out: list[Request]
) -> bool:
    """The group gets its places, and those who move theirs, although some of them do not go."""
    stay = {pod.uid for pod in left_out}
    moved = [pod for pod in moves if pod.uid not in stay]
    lost = [pod for pod in gone if pod.uid not in stay | {pod.uid for pod in moved}]
    accounts, first = fleet.accounts, group.members[0]
    freed = []
    for pod in lost:
        charge = accounts.charge(pod.uid)
        assert charge is not None
        freed.append((charge.queue, charge.amounts))
    need = group_turns.needed(fleet, group.members)
    if gates.after(accounts, first.queue, need, freed, fixed=not first.preemptible) is not None:
        return False
    with trials.trial(fleet):
        for uid in [*fleet.releasing, *(pod.uid for pod in gone if pod.uid not in stay)]:
            fleet.take_away(uid)
        for pod in (*group.members, *moved):
            place = best_placement(fleet, pod, policy, plain=True)
            if place is None:
                return False
            group_decision.assume(fleet, pod, place)
    return True


def check_work_conserving(stream: Stream, where: str) -> None:
    """Whoever waits is stopped by a queue, or has no place."""
    fleet = stream.fleet
    waiting: dict[str, list[Request]] = {}
    for pod in stream.simulation.pending.values():
        waiting.setdefault(pod.group_key, []).append(pod)
    for pods in waiting.values():
        turn = group_turns.next_turn(fleet, sorted(pods, key=gangs.age))
        if isinstance(turn, Refusal) or group_turns.stopped(fleet, turn) is not None:
            continue
        outcome = group_decision.decide(fleet, turn.group, Policy("first-fit"), plain=True, explained=False)
        assert isinstance(outcome, Refusal), f"{where}: {turn.group.name} waits for nothing"


def _features(fleet: Fleet, group: Group, gone: list[Request], moves: list[Request]) -> Iterator[str]:
    lost = [pod for pod in gone if pod not in moves]
    found = {
        "evicted": bool(gone),
        "moved": bool(moves),
        "whole group": any(Counter(pod.group_key for pod in lost)[pod.group_key] > 1 for pod in lost),
        "spare pod": any(
            any(uid not in fleet.releasing for uid in fleet.group_pods.get(pod.group_key, ())) for pod in lost
        ),
        "budget": any(fleet.budgets.of(pod.uid) for pod in gone),
        "slice": any(pod.slices for pod in gone),
        "share": any(pod.share for pod in gone),
        "static": any("nvidia.com/mig-1g.5gb" in pod.resources for pod in gone),
        "gang taker": len(group.members) > 1 and bool(gone),
    }
    yield from (name for name, there in found.items() if there)
