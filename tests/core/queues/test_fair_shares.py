"""Fair shares, case by case."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from types import FrameType
from typing import Any

import pytest

from apportion.apis.errors import InputError
from apportion.core.queues.fair_shares import QueueDemand, divide, fair_shares


def queue(name: str, **numbers: Any) -> QueueDemand:
    return QueueDemand(name=name, **numbers)


def shares(total: int, *queues: QueueDemand) -> list[int]:
    """In the order of the queues."""
    found = fair_shares(total, queues)
    return [found[each.name] for each in queues]


@pytest.mark.parametrize(
    ("total", "queues", "expected"),
    [
        pytest.param(2000, [{"quota": 3000, "request": 2000}], [2000], id="quota above the request"),
        pytest.param(2000, [{"quota": 1500, "request": 2000, "weight": 0}], [1500], id="weight 0 gets its quota only"),
        pytest.param(
            12000,
            [{"quota": 2000, "request": 6000, "limit": 5000}, {"quota": 2000, "request": 6000}],
            [5000, 6000],
            id="limit, then request",
        ),
        pytest.param(11000, [{"quota": 2000, "request": 6000}] * 2, [5500, 5500], id="half of a GPU"),
        pytest.param(11, [{"quota": 2, "request": 6}] * 2, [6, 5], id="the older one gets the last unit"),
        pytest.param(
            5000,
            [{"priority": 2, "quota": 2000, "request": 5000}] * 2 + [{"priority": 1, "quota": 1000}],
            [2500, 2500, 0],
            id="priority, and a quota that nobody requests",
        ),
        pytest.param(
            1000,
            [{"quota": 250, "request": 5000}, {"quota": 150, "weight": 2, "limit": 400, "request": 5000}],
            [600, 400],
            id="weights, and a limit",
        ),
        pytest.param(
            10_000,
            [{"quota": 5000, "weight": 5000, "request": 10_000}, {"weight": 0, "request": 5000}],
            [10_000, 0],
            id="CPU",
        ),
    ],
)
def test_q03_division_among_siblings(total: int, queues: list[dict[str, Any]], expected: list[int]) -> None:
    made = [queue(f"q{number}", created=f"2026-01-0{number + 1}", **each) for number, each in enumerate(queues)]
    assert shares(total, *made) == expected


def test_q03_quotas_above_the_total_are_not_reduced_and_leave_nothing_to_divide() -> None:
    wanting = queue("c", request=500, priority=900)
    assert shares(1000, queue("a", quota=800, request=900), queue("b", quota=700, request=700), wanting) == [
        800,
        700,
        0,
    ]


def test_q03_an_unlimited_quota_is_the_whole_total() -> None:
    assert shares(1000, queue("a", quota=-1, request=5000), queue("b", request=5000)) == [1000, 0]
    assert shares(1000, queue("a", quota=-1, request=300), queue("b", request=5000)) == [300, 700]


def test_q03_an_unlimited_quota_of_a_child_is_the_fair_share_of_its_parent() -> None:
    parents = (queue("p", quota=400), queue("other", request=9000))
    assert shares(1000, *parents, queue("a", parent="p", quota=-1, request=9000)) == [700, 300, 700]


def test_q03_a_limit_below_the_quota_is_the_guarantee() -> None:
    assert shares(1000, queue("a", quota=800, limit=100, request=900), queue("b", request=5000)) == [100, 900]


def test_q03_a_limit_of_0_is_no_unlimited_one() -> None:
    assert shares(1000, queue("a", limit=0, request=900), queue("b", request=100)) == [0, 100]


def test_q03_what_a_queue_cannot_use_goes_to_the_others_by_weight() -> None:
    """Equal parts of 300 are too much for `a`; `b` and `c` divide the other 800 as 1 to 3."""
    a, b, c = queue("a", request=100), queue("b", request=900), queue("c", request=900, weight=3)
    assert shares(900, a, b, c) == [100, 200, 600]


def test_q03_weights_are_exact() -> None:
    """As floats, 0.1 + 0.2 is not 0.3."""
    small = [queue("a", weight=Fraction("0.1"), request=10**18), queue("b", weight=Fraction("0.2"), request=10**18)]
    assert shares(6 * 10**17, *small, queue("c", weight=Fraction("0.3"), request=10**18)) == [
        10**17,
        2 * 10**17,
        3 * 10**17,
    ]


def test_q03_requests_that_are_the_same_as_floats_are_told_apart() -> None:
    """In bytes: each part is 10**18 + 1, which is too much for the smaller request only."""
    large, small = queue("a", request=10**18 + 2), queue("b", request=10**18)
    assert shares(2 * 10**18 + 2, large, small) == [10**18 + 2, 10**18]


def test_q03_a_huge_weight_leaves_nothing_and_a_tiny_one_gets_what_is_left() -> None:
    huge = queue("huge", weight=Fraction("1e300"), request=900)
    tiny = queue("tiny", weight=Fraction("1e-300"), request=900)
    assert shares(800, tiny, huge) == [0, 800]
    assert shares(1000, tiny, huge) == [100, 900]


def test_q03_the_next_priority_gets_what_the_higher_one_leaves() -> None:
    high, zero = queue("high", priority=200, request=300), queue("zero", priority=150, weight=0, request=900)
    assert shares(1000, queue("low", request=900), high, zero) == [700, 300, 0]


def test_q03_the_last_units_go_to_the_largest_remainders() -> None:
    """10 units by 1 : 2 : 3 are 1.67, 3.33 and 5."""
    assert shares(10, *(queue(f"w{weight}", weight=weight, request=99) for weight in (1, 2, 3))) == [2, 3, 5]


def test_q03_equal_remainders_go_by_age_then_by_name() -> None:
    later, sooner = "2026-02-01T00:00:00Z", "2026-01-01T00:00:00Z"
    assert shares(3, queue("a", created=later, request=9), queue("b", created=sooner, request=9)) == [1, 2]
    assert shares(3, queue("b", created=later, request=9), queue("a", created=later, request=9)) == [1, 2]


def test_q03_the_last_units_never_exceed_a_request() -> None:
    """In whole GPUs, 7 of them for requests of 2, 9 and 9: the first is content."""
    assert shares(7, queue("a", request=2), queue("b", request=9), queue("c", request=9)) == [2, 3, 2]


def test_q03_children_divide_the_fair_share_of_their_parent() -> None:
    department = queue("department", quota=4000, limit=6000)
    teams = queue("x", parent="department", quota=1000, request=8000), queue("y", parent="department", request=2000)
    assert shares(10_000, department, queue("other", request=3000), *teams) == [6000, 3000, 4000, 2000]


def test_q03_a_parent_requests_no_more_than_its_children_can_use() -> None:
    """The child's limit counts, not its request: the rest is for the sibling of its parent."""
    child = queue("child", parent="p", limit=100, request=9000)
    assert shares(1000, queue("p", quota=800), queue("other", request=9000), child) == [100, 900, 100]


def test_q03_requests_of_an_inner_queue_itself_count() -> None:
    child = queue("child", parent="p", request=200)
    assert shares(1000, queue("p", request=300), queue("other", request=9000), child) == [500, 500, 200]


def test_q03_quotas_of_children_can_exceed_the_fair_share_of_their_parent() -> None:
    children = [queue(name, parent="p", quota=400, request=400) for name in ("a", "b")]
    assert shares(500, queue("p"), *children) == [500, 400, 400]


def test_q03_a_total_below_0_is_none() -> None:
    assert shares(-5, queue("a", quota=-1, request=9), queue("b", request=9)) == [0, 0]


def test_q03_no_queues_have_no_shares() -> None:
    assert fair_shares(1000, []) == divide(1000, []) == {}


@pytest.mark.parametrize(
    ("queues", "field", "said"),
    [
        ([queue("a"), queue("a")], "queues.a.name", "two queues"),
        ([queue("a", parent="x")], "queues.a.parent", "does not exist"),
        ([queue("a", parent="a")], "queues.a.parent", "a -> a"),
        (
            [queue("r"), queue("a", parent="b"), queue("b", parent="c"), queue("c", parent="b")],
            "queues.b.parent",
            "b -> c -> b",
        ),
    ],
)
def test_q03_queues_that_are_no_tree_are_refused(queues: list[QueueDemand], field: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        fair_shares(1000, queues)
    assert error.value.field == field


def _siblings(count: int) -> list[QueueDemand]:
    """Each becomes full alone, at a level of its own."""
    return [
        queue(f"q{number}", weight=Fraction(number % 7 + 1, 10), request=number * 1000 + 1) for number in range(count)
    ]


def _chain(count: int) -> list[QueueDemand]:
    return [queue(f"q{number}", parent=f"q{number - 1}" if number else None, request=1) for number in range(count)]


@pytest.mark.parametrize("shape", [_siblings, _chain])
def test_q03_the_cost_grows_with_the_number_of_queues_only(shape: Callable[[int], list[QueueDemand]]) -> None:
    small, large = shape(500), shape(5000)
    assert _calls(lambda: fair_shares(10**7, large)) < 20 * _calls(lambda: fair_shares(10**6, small))


def _calls(work: Callable[[], object]) -> int:
    """How many functions are called, in Python or C: the cost, the same on every machine."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
