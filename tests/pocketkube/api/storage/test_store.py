"""The store alone: revisions, optimistic concurrency, history, and a model that it must agree with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pocketkube.api.storage.store import (
    FIRST_REVISION,
    Bucket,
    Change,
    Compacted,
    Exists,
    Future,
    Missing,
    Stale,
    Store,
)

THINGS, OTHERS = Bucket("", "things"), Bucket("x.io", "others")


def thing(value: int = 0) -> dict[str, Any]:
    return {"metadata": {"labels": {"v": str(value)}}, "value": value}


def test_every_write_has_its_own_revision_over_all_buckets() -> None:
    store = Store()
    first = store.create(THINGS, "n", "a", thing())
    second = store.create(OTHERS, "", "a", thing())
    third = store.update(THINGS, "n", "a", thing(1))
    last = store.delete(THINGS, "n", "a")
    assert [first.revision, second.revision, third.revision, last.revision] == [
        FIRST_REVISION + step for step in (1, 2, 3, 4)
    ]
    assert last.decode()["metadata"]["resourceVersion"] == str(last.revision)


def test_a_create_of_what_exists_and_a_write_of_what_does_not_are_refused_without_a_trace() -> None:
    store = Store()
    store.create(THINGS, "n", "a", thing())
    revision = store.revision
    with pytest.raises(Exists):
        store.create(THINGS, "n", "a", thing())
    with pytest.raises(Missing):
        store.update(THINGS, "n", "b", thing())
    with pytest.raises(Missing):
        store.delete(THINGS, "m", "a")
    assert store.revision == revision


def test_a_stale_write_is_refused() -> None:
    store = Store()
    old = store.create(THINGS, "n", "a", thing())
    store.update(THINGS, "n", "a", thing(1), expected=old.revision)
    with pytest.raises(Stale):
        store.update(THINGS, "n", "a", thing(2), expected=old.revision)
    with pytest.raises(Stale):
        store.delete(THINGS, "n", "a", expected=old.revision)


def test_an_object_that_cannot_be_encoded_takes_no_revision() -> None:
    store = Store()
    revision = store.revision
    with pytest.raises(TypeError):
        store.create(THINGS, "n", "a", {"metadata": {}, "bad": object()})
    assert store.revision == revision
    assert store.get(THINGS, "n", "a") is None


def test_the_past_is_as_it_was_until_it_is_compacted() -> None:
    store = Store()
    store.create(THINGS, "n", "a", thing())
    then = store.create(THINGS, "n", "b", thing()).revision
    store.update(THINGS, "n", "a", thing(1))
    store.delete(THINGS, "n", "b")
    store.create(THINGS, "n", "c", thing())
    assert [(item.key.name, item.decode()["value"]) for item in store.items_at(THINGS, "n", then)] == [
        ("a", 0),
        ("b", 0),
    ]
    with pytest.raises(Future):
        store.items_at(THINGS, "n", store.revision + 1)
    store.compact()
    with pytest.raises(Compacted):
        store.items_at(THINGS, "n", then)
    with pytest.raises(Compacted):
        store.changes(THINGS, then)
    assert store.changes(THINGS, store.revision) == []


def test_a_full_history_forgets_its_oldest_change() -> None:
    store = Store(history=3)
    for number in range(5):
        store.create(THINGS, "n", str(number), thing())
    with pytest.raises(Compacted) as caught:
        store.changes(THINGS, FIRST_REVISION)
    assert [change.new.key.name for change in store.changes(THINGS, caught.value.oldest)] == ["2", "3", "4"]


class StoreMachine(RuleBasedStateMachine):
    """Random writes: reads, history and what a listener saw are consistent."""

    names = st.sampled_from(["a", "b", "c"])
    namespaces = st.sampled_from(["m", "n"])

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(history=20)
        self.model: dict[tuple[str, str], tuple[int, int]] = {}
        self.seen: list[Change] = []
        self.snapshots: dict[int, dict[tuple[str, str], int]] = {}
        self.store.listen(THINGS, self.seen.append)

    @rule(namespace=namespaces, name=names, value=st.integers(0, 9))
    def create(self, namespace: str, name: str, value: int) -> None:
        if (namespace, name) in self.model:
            with pytest.raises(Exists):
                self.store.create(THINGS, namespace, name, thing(value))
            return
        stored = self.store.create(THINGS, namespace, name, thing(value))
        self.model[namespace, name] = (stored.revision, value)
        self._remember()

    @rule(namespace=namespaces, name=names, value=st.integers(0, 9), stale=st.booleans())
    def update(self, namespace: str, name: str, value: int, *, stale: bool) -> None:
        known = self.model.get((namespace, name))
        expected = None if known is None else known[0] - 1 if stale else known[0]
        if known is None or stale:
            with pytest.raises(Missing if known is None else Stale):
                self.store.update(THINGS, namespace, name, thing(value), expected=expected)
            return
        stored = self.store.update(THINGS, namespace, name, thing(value), expected=expected)
        self.model[namespace, name] = (stored.revision, value)
        self._remember()

    @rule(namespace=namespaces, name=names)
    def delete(self, namespace: str, name: str) -> None:
        if (namespace, name) not in self.model:
            with pytest.raises(Missing):
                self.store.delete(THINGS, namespace, name)
            return
        self.store.delete(THINGS, namespace, name)
        del self.model[namespace, name]
        self._remember()

    @rule()
    def write_elsewhere(self) -> None:
        self.store.create(OTHERS, "", str(self.store.revision), thing())

    @invariant()
    def reads_agree_with_the_model(self) -> None:
        found = {tuple(item.key): (item.revision, item.decode()["value"]) for item in self.store.items(THINGS)}
        assert found == self.model
        assert [tuple(item.key) for item in self.store.items(THINGS)] == sorted(self.model)

    @invariant()
    def listeners_saw_every_change_once_and_in_order(self) -> None:
        revisions = [change.revision for change in self.seen]
        assert revisions == sorted(set(revisions))
        state: dict[tuple[str, str], int] = {}
        for change in self.seen:
            key = (change.new.key.namespace, change.new.key.name)
            if change.type == "DELETED":
                del state[key]
            else:
                assert (change.type == "ADDED") == (key not in state)
                state[key] = change.revision
        assert state == {key: revision for key, (revision, _) in self.model.items()}

    @invariant()
    def the_past_is_what_it_was(self) -> None:
        for revision, state in self.snapshots.items():
            try:
                found = self.store.items_at(THINGS, "", revision)
            except Compacted:
                continue
            assert {tuple(item.key): item.revision for item in found} == state

    def _remember(self) -> None:
        self.snapshots[self.store.revision] = {key: revision for key, (revision, _) in self.model.items()}


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
