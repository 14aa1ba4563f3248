"""Amounts in words, and as a Queue states them."""

from __future__ import annotations

import pytest

from apportion.core.queues import quantities


@pytest.mark.parametrize(
    ("resource", "amount", "said", "stated"),
    [
        ("gpu", 6500, "6.5 GPUs", "6.5"),
        ("gpu", 1000, "1 GPU", "1"),
        ("gpu", 0, "0 GPUs", "0"),
        ("gpu", 1, "0.001 GPUs", "0.001"),
        ("cpu", 1000, "1 core", "1000"),
        ("cpu", 250, "0.25 cores", "250"),
        ("memory", 1_500_000, "1.5 MB", "1.5"),
        ("memory", 1 << 30, "1073.742 MB", "1073.741824"),
        ("memory", 10**21 + 1, f"{10**15} MB", f"{10**15}.000001"),
        ("gpu", -1, "unlimited", "-1"),
    ],
)
def test_q12_amounts_are_told_in_units_and_stated_exactly(resource: str, amount: int, said: str, stated: str) -> None:
    assert quantities.said(resource, amount) == said
    assert quantities.stated(resource, amount) == stated


def test_q12_two_amounts_share_one_unit() -> None:
    assert quantities.used_of("gpu", 2000, 3000) == "2 of 3 GPUs"
    assert quantities.used_of("gpu", 500, 1000) == "0.5 of 1 GPU"
    assert quantities.used_of("gpu", 6500, 6000, "fair share") == "6.5 of a fair share of 6 GPUs"
