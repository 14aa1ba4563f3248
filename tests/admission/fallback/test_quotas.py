"""Which quotas allow no more pods (T03)."""

from __future__ import annotations

import pytest

from apportion.admission.fallback.quotas import QuotaSpec, QuotaStatus, ResourceQuota, exhausted


@pytest.mark.parametrize(
    ("hard", "used", "expected"),
    [
        ({"pods": "0"}, {}, True),
        ({"pods": "10"}, {"pods": "9"}, False),
        ({"pods": "10"}, {"pods": "10"}, True),
        ({"count/pods": "1k"}, {"count/pods": "1000"}, True),
        ({"requests.nvidia.com/mig-2g.20gb": "2"}, {"requests.nvidia.com/mig-2g.20gb": "2"}, True),
        ({"requests.cpu": "1", "pods": "5"}, {"requests.cpu": "1"}, False),
        ({"pods": "nonsense"}, {}, False),
        ({}, {}, False),
    ],
)
def test_t03_a_quota_for_pods_or_devices_that_is_used_up(
    hard: dict[str, str | int | float], used: dict[str, str | int | float], *, expected: bool
) -> None:
    assert exhausted(ResourceQuota(spec=QuotaSpec(hard=hard), status=QuotaStatus(used=used))) is expected


def test_t03_quotas_with_scopes_may_concern_other_pods() -> None:
    spec = QuotaSpec(hard={"pods": "0"}, scopes=["BestEffort"])
    assert not exhausted(ResourceQuota(spec=spec))
