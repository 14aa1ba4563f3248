"""Writes that informers have not shown yet: each ends exactly when it is shown, gone or known not to have happened."""

from __future__ import annotations

from apportion.apis.meta import Bare, ObjectMeta
from apportion.cluster.pending_writes import PendingWrites


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def obj(version: int, uid: str = "u1") -> Bare:
    return Bare(metadata=ObjectMeta(name="a", uid=uid, resource_version=str(version)))


def test_a_write_is_pending_until_an_informer_shows_it() -> None:
    pending: PendingWrites[Bare] = PendingWrites(Clock())
    pending.begin("a")
    assert "a" in pending
    assert pending.shown("a", obj(1))
    assert "a" not in pending
    assert not pending.shown("a", obj(2))


def test_an_older_version_confirms_nothing() -> None:
    pending: PendingWrites[Bare] = PendingWrites(Clock())
    pending.written("a", obj(7))
    assert not pending.shown("a", obj(6))
    assert pending.latest("a", obj(6)) == obj(7)
    assert pending.latest("a", obj(8)) == obj(8), "somebody else has written since"
    assert pending.shown("a", obj(7))
    assert pending.latest("a", obj(7)) == obj(7)


def test_the_answer_of_an_earlier_write_that_comes_late_replaces_nothing() -> None:
    pending: PendingWrites[Bare] = PendingWrites(Clock())
    pending.written("a", obj(9))
    pending.written("a", obj(8))
    assert pending.latest("a", obj(1)) == obj(9)


def test_another_object_of_the_same_name_is_not_the_one_that_was_written() -> None:
    pending: PendingWrites[Bare] = PendingWrites(Clock())
    pending.written("a", obj(7))
    assert pending.latest("a", obj(3, uid="u2")) == obj(3, uid="u2")


def test_what_was_removed_is_gone_until_the_informer_knows_it_too() -> None:
    pending: PendingWrites[Bare] = PendingWrites(Clock())
    pending.removed("a", "u1")
    assert pending.latest("a", obj(7)) is None
    assert not pending.shown("a", obj(8))
    assert pending.latest("a", obj(9, uid="u2")) == obj(9, uid="u2")
    assert pending.shown("a")


def test_only_what_the_server_has_can_be_overdue() -> None:
    clock = Clock()
    pending: PendingWrites[Bare] = PendingWrites(clock)
    pending.begin("a")
    clock.now += 1000
    assert pending.overdue(30) == []
    pending.written("a")
    clock.now += 29
    assert pending.overdue(30) == []
    clock.now += 1
    assert pending.overdue(30) == ["a"]
    assert pending.drop("a")
    assert not pending.drop("a")
    assert pending.overdue(0) == []
