"""When certificates are renewed: a pure question of what is there and what time it is."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from apportion.admission.certificates.credentials import Credentials, Terms, issue, renewed, service_names
from apportion.cluster.certificates import Authority

START = datetime(2026, 1, 1, tzinfo=UTC)
TERMS = Terms(service_names("das-operator-webhook", "das-operator"), leaf_days=90, authority_days=900)


def days(number: float) -> datetime:
    return START + timedelta(days=number)


def test_r03_a_fresh_certificate_is_left_alone_and_renewed_at_two_thirds_of_its_life() -> None:
    first = issue(TERMS, START)
    assert renewed(first, TERMS, days(1)) is first
    assert renewed(first, TERMS, days(59)) is first
    second = renewed(first, TERMS, days(61))
    assert second.pair != first.pair
    assert second.bundle == first.bundle
    assert first.pair.covers(TERMS.dns_names)
    assert renewed(second, TERMS, days(61)) is second


def test_r03_a_new_authority_is_announced_before_certificates_of_it_are_served() -> None:
    first = issue(TERMS, START)
    almost = renewed(first, TERMS, days(599))
    announced = renewed(almost, TERMS, days(601))
    assert announced.bundle != almost.bundle
    assert almost.bundle in announced.bundle
    assert announced.pair == almost.pair
    assert renewed(announced, TERMS, days(601) + timedelta(minutes=5)) is announced
    served = renewed(announced, TERMS, days(601) + timedelta(minutes=11))
    assert served.pair != announced.pair
    assert served.authority is not None
    assert Authority(served.authority.pair).signed(served.pair)
    assert served.bundle == announced.bundle


def test_r03_certificates_for_other_names_are_replaced() -> None:
    first = issue(TERMS, START)
    elsewhere = Terms(service_names("gpu-webhook", "gpu-webhook"))
    assert renewed(first, elsewhere, days(1)).pair.covers(elsewhere.dns_names)


def test_r03_a_secret_is_read_back_as_it_was_written() -> None:
    first = issue(TERMS, datetime.now(UTC))
    again = Credentials.read(first.data())
    assert again == first


def test_r03_a_secret_without_the_authoritys_key_is_somebody_elses_and_never_renewed() -> None:
    first = issue(TERMS, START)
    data = first.data()
    del data["ca.key"]
    foreign = Credentials.read(data)
    assert foreign.authority is None
    assert renewed(foreign, TERMS, days(1000)) is foreign


SPOILT = [(key, text) for key in ("ca.crt", "tls.crt", "tls.key") for text in (b"", b"garbage")] + [
    ("ca.key", b"garbage")
]


@pytest.mark.parametrize(("key", "content"), SPOILT)
def test_r03_an_invalid_secret_is_not_served(key: str, content: bytes) -> None:
    data = issue(TERMS, datetime.now(UTC)).data() | {key: base64.b64encode(content).decode()}
    with pytest.raises((ValueError, OSError)):
        Credentials.read(data)


def test_r03_a_certificate_of_another_authority_is_not_served() -> None:
    mixed = issue(TERMS, datetime.now(UTC)).data() | {"ca.crt": issue(TERMS, datetime.now(UTC)).data()["ca.crt"]}
    with pytest.raises(ValueError, match="not signed"):
        Credentials.read(mixed)
