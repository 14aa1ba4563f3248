"""The arithmetic of rollouts, step by step until it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketkube.controllers.workloads.rollout_sizes import Bounds, Old, bounds, next_size, shrink


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (4, "25%", "25%", Bounds(1, 1)),
        (3, "25%", "25%", Bounds(1, 0)),
        (10, 0, 0, Bounds(0, 1)),
        (1, "25%", "25%", Bounds(1, 0)),
        (10, "50%", 3, Bounds(5, 3)),
    ],
)
def test_percentages_are_rounded_as_kubernetes_does(
    replicas: int, surge: str | int, unavailable: str | int, expected: Bounds
) -> None:
    assert bounds(replicas, surge, unavailable) == expected


def test_pods_that_are_not_available_go_first() -> None:
    olds = [Old("a", 3, 3), Old("b", 2, 0)]
    assert shrink(5, Bounds(1, 0), 1, 0, olds) == {}
    assert shrink(5, Bounds(1, 1), 1, 1, olds) == {"b": 0}


@given(
    replicas=st.integers(1, 12),
    surge=st.integers(0, 5),
    unavailable=st.integers(0, 5),
    old=st.integers(0, 15),
)
def test_a_rollout_ends_and_stays_within_its_bounds(replicas: int, surge: int, unavailable: int, old: int) -> None:
    limit = bounds(replicas, surge, unavailable)
    new, ready = 0, 0
    for _ in range(100):
        grown = next_size(replicas, limit, new, old)
        assert grown + old <= max(replicas + limit.surge, new + old)
        new = grown
        sizes = shrink(replicas, limit, new, ready, [Old("o", old, old)] if old else [])
        before = old
        old = sizes.get("o", old)
        assert ready + old >= min(replicas - limit.unavailable, ready + before)
        ready = new  # what was started becomes ready
        if new == replicas and old == 0:
            return
    pytest.fail("the rollout does not end")
