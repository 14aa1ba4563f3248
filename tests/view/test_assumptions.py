"""A statement after it was decided: written, and then confirmed by what informers show, or undone."""

from __future__ import annotations

import pytest

from apportion.apis.placements import SlicePlacement
from apportion.core import group_decision
from apportion.core.cluster_changes import Happened
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.operations import ObjectKind
from apportion.core.policies import Policy
from apportion.core.statement import Statement
from apportion.core.volumes import Storage, StorageClassFacts, VolumeClaimFacts, VolumeFacts
from apportion.view.assumptions import Assumptions
from apportion.view.change_log import ChangeLog, ChangeReader
from tests.builders.fleets import mig_fleet
from tests.builders.pods import pod_request

LOCAL = "local"


class Life:
    """A pod with two slices that was decided about."""

    def __init__(self) -> None:
        self.now = 100.0
        self.fleet: Fleet = mig_fleet(1)
        self.before = self.fleet.record()
        log = ChangeLog()
        self.changes: ChangeReader = log.reader()
        self.assumptions = Assumptions(self.fleet, log, lambda: self.now)
        decided = group_decision.decide(self.fleet, Group.of(pod_request("a", slices={"1g.5gb": 2})), Policy())
        assert isinstance(decided, Statement)
        self.statement = decided
        self.assumptions.decided(decided)

    @property
    def held(self) -> list[str]:
        return [held.key for held in self.fleet.slices_of("uid-default-a")]

    def overdue(self, seconds: float) -> int:
        return len(self.assumptions.overdue(seconds))


@pytest.fixture
def life() -> Life:
    return Life()


def test_an_undone_statement_leaves_nothing_and_says_what_is_free_again(life: Life) -> None:
    life.assumptions.undo(life.statement)
    assert life.fleet.record() == life.before
    assert [change.kind for change in life.changes.take()] == [
        Happened.DISPLAY_CHANGED,  # decided
        Happened.POD_GONE,
        Happened.SLICE_FREED,
        Happened.SLICE_FREED,
    ]
    life.now += 1000
    assert not life.overdue(0)


def test_what_exists_on_the_server_stays_until_it_is_shown_or_missed(life: Life) -> None:
    first, second = life.statement.claims
    life.assumptions.undo(life.statement, existing={first.confirmed_by})
    assert life.held == [first.name]
    assert second.confirmed_by not in life.assumptions
    life.now += 5
    assert not life.overdue(6)
    assert [each.operation for each in life.assumptions.overdue(5)] == [first]
    life.assumptions.drop(first)
    assert life.fleet.record() == life.before


def test_what_was_shown_is_a_fact_and_is_not_undone(life: Life) -> None:
    first, second = life.statement.claims
    assert life.assumptions.shown(ObjectKind.CLAIM, first.name)
    assert not life.assumptions.shown(ObjectKind.CLAIM, first.name)
    life.assumptions.undo(life.statement)
    assert life.held == [first.name]
    assert second.name not in life.fleet.slices


def test_a_written_statement_is_overdue_until_all_of_it_is_shown(life: Life) -> None:
    life.now += 1000
    assert not life.overdue(0), "it is still being written"
    life.assumptions.written(life.statement)
    assert life.overdue(0) == 3
    for each in life.statement.operations:
        assert each.confirmed_by is not None
        life.assumptions.shown(*each.confirmed_by)
    assert not life.overdue(0)


def test_an_undone_statement_does_not_take_what_the_cluster_put_in_its_place(life: Life) -> None:
    """Another leader wrote a claim of the same name for another place."""
    first, _ = life.statement.claims
    life.assumptions.shown(ObjectKind.CLAIM, first.name)
    theirs = SlicePlacement("node-0-gpu0", "1g.5gb", 0, 1)
    life.fleet.add_slice(first.name, theirs, "uid-default-a")
    life.assumptions.undo(life.statement)
    assert life.fleet.slices[first.name].placement == theirs


def test_a_chosen_volume_counts_until_the_facts_tell_it() -> None:
    fleet = mig_fleet(1)
    claim, volume = VolumeClaimFacts(storage_class=LOCAL), VolumeFacts(storage_class=LOCAL)
    fleet.storage = storage = Storage(
        {"default/a": claim}, {"pv": volume}, {LOCAL: StorageClassFacts(waits_for_pod=True)}
    )
    request = pod_request("a", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}])
    statement = group_decision.decide(fleet, Group.of(request), Policy())
    assert isinstance(statement, Statement)
    assumptions = Assumptions(fleet, ChangeLog(), lambda: 0.0)
    assumptions.decided(statement)
    assert not assumptions.shown(ObjectKind.VOLUME, "pv"), "the volume was shown, but not with its claim"
    storage.volumes["pv"] = VolumeFacts(storage_class=LOCAL, claim="default/a")
    assert assumptions.shown(ObjectKind.VOLUME, "pv")
    assert not storage.chosen
