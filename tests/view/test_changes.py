"""The log of changes: every reader sees each change once, and one that lags is told to look at everything."""

from __future__ import annotations

from apportion.core.cluster_changes import Change, Happened
from apportion.view.change_log import ChangeLog


def test_each_reader_sees_every_change_once_and_in_order() -> None:
    log = ChangeLog()
    first, second = log.reader(), log.reader()
    log.note(Happened.POD_CAME, "n1", "a")
    assert first.take() == [Change(Happened.POD_CAME, "n1", "a")]
    log.note(Happened.POD_GONE, "n1", "a")
    assert first.take() == [Change(Happened.POD_GONE, "n1", "a")]
    assert [change.kind for change in second.take()] == [Happened.POD_CAME, Happened.POD_GONE]
    assert first.take() == second.take() == []


def test_the_log_is_bounded_and_a_reader_that_lags_is_told_so_once() -> None:
    log = ChangeLog(most=3)
    reader = log.reader()
    for number in range(4):
        log.note(Happened.NODE_CHANGED, f"n{number}")
    assert reader.take() == [Change(Happened.EVERYTHING)]
    assert reader.take() == []
    for number in range(3):
        log.note(Happened.NODE_CHANGED, f"n{number}")
    assert [change.node for change in reader.take()] == ["n0", "n1", "n2"]


def test_a_position_can_be_kept_and_read_from_later() -> None:
    log = ChangeLog()
    log.note(Happened.NODE_CHANGED, "n1")
    position = log.position
    log.note(Happened.NODE_CHANGED, "n2")
    assert [change.node for change in log.since(position)] == ["n2"]
    assert log.since(log.position) == []


def test_listeners_are_woken_at_every_change() -> None:
    log, woken = ChangeLog(), []
    log.on_change(lambda: woken.append(log.position))
    log.note(Happened.STORAGE_CHANGED)
    log.note(Happened.STORAGE_CHANGED)
    assert woken == [1, 2]
