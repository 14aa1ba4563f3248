"""Promises under any order of events: never lost, never fulfilled twice, never for ever."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from apportion.admission.fallback import promises
from apportion.admission.fallback.promises import Ages, Promise, Sighting, StoredPromises
from apportion.apis.placements import SlicePlacement

LIFETIME = 30.0


class Reader:
    """A replica that keeps what it knows of the age of the promises; it began to count at some time of its own."""

    def __init__(self) -> None:
        self.elapsed = 7.0
        self.ages = Ages(LIFETIME, lambda: self.elapsed)

    def tidied(self, stored: StoredPromises, sightings: promises.Sightings | None = None) -> StoredPromises:
        self.ages.look(stored)
        return promises.tidied(stored, sightings or {}, self.ages)

    def demand(self, stored: StoredPromises) -> int:
        self.ages.look(stored)
        return self.ages.demand(stored)


def promise(number: int, kind: str = "k", at: float = 100.0) -> Promise:
    return Promise(str(number), at, kind, "n", resources={"nvidia.com/mig-2g.20gb": 1})


def test_f04_a_pod_that_is_seen_ends_exactly_one_promise() -> None:
    stored = StoredPromises()
    for number in range(3):
        stored = promises.added(stored, promise(number), {})
    seen = {"k": {"uid-a": Sighting(7, 101.0)}}
    reader = Reader()
    once = reader.tidied(stored, seen)
    assert [left.id for left in once.promises] == ["1", "2"]
    assert once.pods == 7
    assert reader.tidied(once, seen) == once


def test_f04_versions_that_start_again_delay_decisions_only_for_a_while() -> None:
    reader = Reader()
    stored = reader.tidied(promises.added(StoredPromises(), promise(0), {}), {"k": {"a": Sighting(900, 101.0)}})
    assert reader.demand(stored) == 900
    reader.elapsed += LIFETIME + 1
    assert reader.demand(stored) == 0
    later = promises.added(stored, promise(1, at=200.0), {})
    assert reader.demand(reader.tidied(later, {"k": {"b": Sighting(5, 201.0)}})) == 5


def test_f04_pods_that_were_there_before_end_no_promise() -> None:
    there = {"k": {"uid-a": Sighting(7, 99.0)}}
    stored = promises.added(StoredPromises(), promise(0), there)
    assert Reader().tidied(stored, there).promises == stored.promises


@pytest.mark.parametrize("at", [-1e9, 100.0, 1e12], ids=["written-long-ago", "now", "in-the-future"])
def test_f04_promises_end_after_their_lifetime_by_the_readers_own_clock(at: float) -> None:
    stored = promises.added(StoredPromises(), promise(0, at=at), {})
    reader = Reader()
    assert reader.tidied(stored).promises
    reader.elapsed += 10.0
    assert reader.ages.next_end(stored) == LIFETIME - 10.0
    reader.elapsed += LIFETIME - 10.0
    assert reader.tidied(stored).promises
    reader.elapsed += 1.0
    assert not reader.tidied(stored).promises
    assert reader.ages.next_end(stored) == 0.0
    assert reader.ages.next_end(StoredPromises()) is None


def test_f04_a_promise_that_was_removed_and_comes_again_is_new() -> None:
    reader = Reader()
    stored = promises.added(StoredPromises(), promise(0), {})
    reader.tidied(stored)
    reader.tidied(StoredPromises())
    reader.elapsed += LIFETIME + 1
    assert reader.tidied(stored).promises


def test_f04_the_number_of_promises_is_bounded() -> None:
    shared = StoredPromises(tuple(promise(n) for n in range(promises.MOST_PROMISES)))
    assert shared.full_for("other")
    assert StoredPromises((promise(0),), seen={"k": ("x" * 10,) * 60_000}).full_for("")
    full = StoredPromises(
        tuple(
            Promise(f"{n:036}", 1.0, "k" * 20, "n" * 63, resources={f"nvidia.com/mig-{i}g.20gb": 1 for i in range(8)})
            for n in range(promises.MOST_PROMISES)
        )
    )
    assert len(full.encode()) < promises.MOST_BYTES


@given(
    st.builds(
        Promise,
        id=st.text(),
        at=st.floats(allow_nan=False, allow_infinity=False),
        kind=st.text(),
        node=st.text(),
        pieces=st.tuples(
            st.builds(SlicePlacement, gpu=st.text(), profile=st.text(), start=st.integers(0, 9), size=st.integers(1, 8))
        ),
    )
)
def test_f04_promises_are_read_back_as_written(made: Promise) -> None:
    stored = promises.added(StoredPromises(), made, {made.kind: {"u": Sighting(1, 1.0)}})
    assert StoredPromises.decode(stored.encode()) == stored


@dataclasses.dataclass
class Made:
    """A pod that was answered: whether it came, and when the server knew it."""

    kind: str
    promise: str
    uid: str = ""


class Replicas(RuleBasedStateMachine):
    """Two replicas with views of their own age write the same promises; the test knows the truth.

    At any moment, for a replica that may decide (its view is as new as the stored demands): pods that came and
    that it does not see are covered by promises of their kind. The second replica's clock is far ahead.
    """

    AHEAD = (0.0, 1000.0)

    answered = Bundle("answered")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.version = 0
        self.stored = StoredPromises()
        self.created: list[tuple[int, str, str, float]] = []  # version, kind, uid, time
        self.views = [0, 0]
        self.open: list[Made] = []
        self.count = 0
        self.readers = [Reader(), Reader()]

    def sightings(self, replica: int) -> dict[str, dict[str, Sighting]]:
        seen: dict[str, dict[str, Sighting]] = {}
        for version, kind, uid, when in self.created:
            if version <= self.views[replica]:
                seen.setdefault(kind, {})[uid] = Sighting(version, float(int(when)))
        return seen

    @rule(replica=st.sampled_from([0, 1]), kind=st.sampled_from(["a", "b"]))
    def decide(self, replica: int, kind: str) -> None:
        reader = self.readers[replica]
        if self.views[replica] < reader.demand(self.stored):
            return  # not before its view is new enough
        self.count += 1
        stored = reader.tidied(self.stored, self.sightings(replica))
        made = promise(self.count, kind, self.now + self.AHEAD[replica])
        self.stored = promises.added(stored, made, self.sightings(replica))
        self.open.append(Made(kind, made.id))

    @rule(data=st.data())
    def pod_comes(self, data: st.DataObject) -> None:
        if not self.open:
            return
        made = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.version += 1
        self.created.append((self.version, made.kind, f"uid-{self.version}", self.now))

    @rule(replica=st.sampled_from([0, 1]), by=st.integers(1, 3))
    def view_moves(self, replica: int, by: int) -> None:
        self.views[replica] = min(self.version, self.views[replica] + by)

    @rule(seconds=st.floats(0.0, 0.3))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for reader in self.readers:
            reader.elapsed += seconds

    @invariant()
    def nothing_is_counted_too_little(self) -> None:
        for replica, view in enumerate(self.views):
            reader = self.readers[replica]
            if view < reader.demand(self.stored):
                continue
            stored = reader.tidied(self.stored, self.sightings(replica))
            for kind in ("a", "b"):
                unseen = [entry for entry in self.created if entry[1] == kind and entry[0] > view]
                coming = [made for made in self.open if made.kind == kind]
                covered = [each for each in stored.promises if each.kind == kind]
                assert len(covered) >= len(unseen) + len(coming)


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
