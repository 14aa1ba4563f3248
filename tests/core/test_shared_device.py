"""Dividing one GPU: sums never exceed its memory, fractions are rounded down, order and repetition change nothing."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from apportion.apis.identities import PodUID
from apportion.apis.shared_gpus import Sharer
from apportion.apis.shares import decimal
from apportion.core.shared_device import UNKNOWN, DeviceMemory, Refused, divide, joined, milli

memories = st.builds(DeviceMemory, st.integers(1, 200_000)) | st.just(UNKNOWN)
sharer = st.builds(Sharer, st.just("ns"), st.just("pod"), st.integers(10, 999)) | st.builds(
    lambda mib: Sharer("ns", "pod", None, mib), st.integers(1, 250_000)
)
crowds = st.dictionaries(st.integers(0, 99).map(lambda number: PodUID(f"uid-{number:02}")), sharer, max_size=12)


@given(memories, crowds)
def test_g04_what_sharers_get_never_exceeds_the_memory(memory: DeviceMemory, crowd: dict[PodUID, Sharer]) -> None:
    divided = divide(memory, crowd)
    assert divided.keys() == crowd.keys()
    got = {uid: mib for uid, mib in divided.items() if not isinstance(mib, Refused)}
    assert sum(got.values()) <= memory.mib
    for uid, mib in got.items():
        asked = crowd[uid]
        assert mib == (asked.mib if asked.milli is None else int(Fraction(asked.milli, 1000) * memory.mib))
        assert memory.known or asked.milli is not None


@given(memories, crowds)
def test_g04_whoever_joins_one_by_one_gets_the_same_as_all_at_once(
    memory: DeviceMemory, crowd: dict[PodUID, Sharer]
) -> None:
    present: dict[PodUID, Sharer] = {}
    got: dict[PodUID, int] = {}
    for uid, asked in crowd.items():
        result = joined(memory, present, uid, asked)
        if not isinstance(result, Refused):
            present[uid] = asked
            got[uid] = result
    assert got == {uid: mib for uid, mib in divide(memory, crowd).items() if not isinstance(mib, Refused)}
    in_any_order = divide(memory, dict(sorted(present.items(), reverse=True)))
    assert in_any_order == got
    for uid, mib in got.items():
        assert joined(memory, present, uid, present[uid]) == mib, "joining again changes nothing"


@given(memories, sharer)
def test_g06_the_portion_is_rounded_up_as_queues_are_charged(memory: DeviceMemory, asked: Sharer) -> None:
    portion = milli(memory, asked)
    assert 1 <= portion <= 1000
    if asked.milli is None:
        exact = min(Fraction(1), Fraction(asked.mib or 0, memory.mib))
        assert 0 <= Fraction(portion, 1000) - exact < Fraction(1, 1000)
    assert Fraction(decimal(portion)) == Fraction(portion, 1000)


def test_g04_the_last_mib_can_be_shared_and_none_beyond_it() -> None:
    others = {PodUID("a"): Sharer("ns", "a", 700), PodUID("b"): Sharer("ns", "b", None, 100)}
    last = Sharer("ns", "c", None, 200)
    assert joined(DeviceMemory(1000), others, PodUID("c"), last) == 200
    more = Sharer("ns", "c", None, 201)
    assert joined(DeviceMemory(1000), others, PodUID("c"), more) == Refused(800, 201, DeviceMemory(1000))
    assert joined(UNKNOWN, {PodUID("a"): others[PodUID("a")]}, PodUID("c"), Sharer("ns", "c", 300)) == 300


def test_g04_reasons_name_the_numbers() -> None:
    memory = DeviceMemory(1000)
    others = {PodUID("a"): Sharer("ns", "a", 700)}
    assert str(joined(memory, others, PodUID("b"), Sharer("ns", "b", None, 400))) == (
        "the share takes 400 MiB, and 700 of 1000 MiB are in use"
    )
    assert "only fractions" in str(joined(UNKNOWN, {}, PodUID("b"), Sharer("ns", "b", None, 400)))
    assert [decimal(number) for number in (500, 250, 10, 1000, 0)] == ["0.5", "0.25", "0.01", "1", "0"]
