from __future__ import annotations

from tests.story import owned_gang
from tests.story.serving_cluster import ServingCluster


def test_q11_q12_r01_a_gang_of_an_owner_has_a_pod_group_that_goes_with_it(
    served: ServingCluster, story_namespace: str
) -> None:
    owned_gang.walk(served.api, story_namespace)
