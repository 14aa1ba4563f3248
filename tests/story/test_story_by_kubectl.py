"""Slices from request to release on the embedded cluster, with kubectl alone."""

from __future__ import annotations

import pytest

from tests.environments import fixtures
from tests.story import slice_story
from tests.story.serving_cluster import ServingCluster

pytestmark = pytest.mark.kubectl


@pytest.fixture
def tell(served: ServingCluster, story_namespace: str) -> slice_story.NamespacedKubectl:
    fixtures.require(("kubectl",))
    return slice_story.NamespacedKubectl(served, story_namespace)


def test_s01_s06_s07_s08_s12_m01_m03_m05_x01_the_story_holds_by_kubectl(
    tell: slice_story.NamespacedKubectl, served: ServingCluster
) -> None:
    slice_story.fourteen_run_and_the_fifteenth_waits(tell)
    slice_story.the_documents_commands_answer(tell)
    slice_story.a_freed_place_is_taken(tell)
    slice_story.one_container_with_two_profiles_gets_one_list(tell)
    slice_story.all_is_given_back(tell)
    assert served.left_on_nodes() == []


def test_s03_d04_bad_input_is_refused_with_field_value_and_fix(tell: slice_story.NamespacedKubectl) -> None:
    slice_story.bad_input_is_refused(tell)


def test_s06_t04_claims_that_are_removed_or_lost_are_put_right(
    tell: slice_story.NamespacedKubectl, served: ServingCluster
) -> None:
    slice_story.a_removed_claim_comes_back_as_it_was(tell)
    slice_story.a_pod_without_a_place_on_its_node_is_evicted(tell)
    assert served.left_on_nodes() == []
