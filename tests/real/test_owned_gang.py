from __future__ import annotations

import pytest

from tests.environments.installed import Installed
from tests.story import owned_gang

pytestmark = pytest.mark.real


def test_q11_q12_r01_a_gang_of_an_owner_has_a_pod_group_that_goes_with_it(
    real_planes: Installed, namespace: str
) -> None:
    owned_gang.walk(real_planes.cluster.api, namespace)
    assert real_planes.cluster.forbidden() == []
