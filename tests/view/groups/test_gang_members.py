"""Since when the minimum of a group runs, and what counts if a group is described twice."""

from __future__ import annotations

import random

from apportion.apis.identities import PodUID
from apportion.core.fleet import Fleet
from apportion.core.groups import Gang, Subgroup
from apportion.view.groups.gang_members import GangMembers, Member
from tests.builders.accelerators import CATALOG

KEY = "default/gang"
PARTS = (Subgroup("leader", 1), Subgroup("worker", 2))


def uid(number: int) -> PodUID:
    return PodUID(f"uid-{number}")


def test_q10_a_group_runs_since_the_last_pod_of_every_part_of_its_minimum_started() -> None:
    fleet = Fleet(CATALOG)
    members = GangMembers(fleet)
    gang = Gang(KEY, 3, PARTS)
    for number, (part, started) in enumerate([("worker", 10), ("worker", 20), ("worker", 30)]):
        members.set(uid(number), Member(KEY, gang, subgroup=part, started=started))
    assert fleet.gangs[KEY].started is None, "no leader runs"
    members.set(uid(3), Member(KEY, gang, subgroup="leader", started=25))
    assert fleet.gangs[KEY].started == 25, "two workers since 20, three pods since 25"
    members.set_started(uid(0), None)
    assert fleet.gangs[KEY].started == 30, "the third worker is the second now"
    members.set_started(uid(3), None)
    assert fleet.gangs[KEY].started is None


def test_q10_starts_are_counted_right_in_any_order() -> None:
    dice = random.Random(5)
    for _ in range(200):
        fleet = Fleet(CATALOG)
        members = GangMembers(fleet)
        gang = Gang(KEY, dice.randint(1, 4))
        running: dict[PodUID, int | None] = {}
        for _ in range(30):
            pod = uid(dice.randrange(8))
            if dice.random() < 0.3:
                members.set(pod, None)
                running.pop(pod, None)
            else:
                running[pod] = dice.choice((None, dice.randrange(20)))
                members.set(pod, Member(KEY, gang, started=running[pod]))
            starts = sorted(each for each in running.values() if each is not None)
            expected = starts[gang.minimum - 1] if len(starts) >= gang.minimum else None
            assert (fleet.gangs[KEY].started if running else None) == expected
            assert (KEY in fleet.gangs) == bool(running)


def test_q07_of_two_descriptions_of_a_group_that_of_its_pod_group_counts() -> None:
    fleet = Fleet(CATALOG)
    members = GangMembers(fleet)
    assert not members.set(uid(1), Member(KEY, Gang(KEY, 4))), "nobody else is in the group"
    assert members.set(uid(2), Member(KEY, Gang(KEY, 2), by_pod_group=True))
    assert fleet.gangs[KEY].minimum == 2
    assert members.set(uid(2), None)
    assert fleet.gangs[KEY].minimum == 4
