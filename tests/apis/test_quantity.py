"""Quantities are read as Kubernetes reads them, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.apis import quantity
from apportion.apis.errors import ApportionError, QuantityError


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("1", 1),
        ("+3", 3),
        ("-2", -2),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("1.25", Fraction(5, 4)),
        ("100m", Fraction(1, 10)),
        ("7u", Fraction(7, 10**6)),
        ("9n", Fraction(9, 10**9)),
        ("2k", 2000),
        ("3M", 3 * 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("2E", 2 * 10**18),
        ("1Ki", 1024),
        ("1.5Mi", 3 * 2**19),
        ("1Gi", 2**30),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("3e2", 300),
        ("3E2", 300),
        ("5e-3", Fraction(1, 200)),
        ("1e+3", 1000),
        (7, 7),
        (0.5, Fraction(1, 2)),
    ],
)
def test_every_suffix_and_exponent_is_read(text: str | float, amount: Fraction | int) -> None:
    assert quantity.parse(text) == amount


def test_finer_than_a_nano_is_rounded_away_from_zero() -> None:
    assert quantity.parse("0.1n") == Fraction(1, 10**9)
    assert quantity.parse("-0.1n") == -Fraction(1, 10**9)


def test_the_largest_amount_is_capped() -> None:
    assert quantity.parse("9999E") == 2**63 - 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "m",
        ".",
        "1.2.3",
        "1 Gi",
        "1gi",
        "1K",
        "Infinity",
        "NaN",
        "1e",
        "0x10",
        "1_000",
        "٣",
        "1e999999999",
        "--1",
    ],
)
def test_what_kubernetes_refuses_is_refused(text: str) -> None:
    with pytest.raises(QuantityError) as refused:
        quantity.parse(text)
    assert refused.value.value == text
    assert refused.value.code == "InvalidQuantity"


@pytest.mark.parametrize("value", [True, None, [], {}, float("nan"), float("inf")])
def test_other_types_are_refused_too(value: object) -> None:
    with pytest.raises(ApportionError):
        quantity.parse(value)  # type: ignore[arg-type]


def test_milli_and_whole_round_up() -> None:
    assert quantity.milli("1.0001") == 1001
    assert quantity.milli("1u") == 1
    assert quantity.whole("1.1Ki") == 1127
    assert quantity.whole("-1500m") == -1


def test_indivisible_amounts_must_be_whole() -> None:
    assert quantity.exact_int("3000m") == 3
    with pytest.raises(QuantityError, match="whole number"):
        quantity.exact_int("500m")


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (10, "10"), (1000, "1k"), (1500, "1500"), (Fraction(1, 2), "500m"), (10**18, "1E")]
)
def test_amounts_are_written_as_kubernetes_writes_them(amount: Fraction | int, text: str) -> None:
    assert quantity.canonical(amount) == text


@given(st.integers(-(10**15), 10**15), st.sampled_from(["n", "u", "m", "", "k", "M", "Ki"]))
def test_reading_back_what_was_written_gives_the_same(number: int, suffix: str) -> None:
    amount = quantity.parse(f"{number}{suffix}")
    assert quantity.parse(quantity.canonical(amount)) == amount
