"""Slices from request to release, with every plane in a container on a real kubelet under its own ServiceAccount."""

from __future__ import annotations

import pytest

from tests.environments.installed import Installed
from tests.story import slice_story

pytestmark = pytest.mark.real


def test_s01_s06_s07_s08_m01_x01_the_story_holds_by_kubectl(real_planes: Installed, namespace: str) -> None:
    tell = slice_story.NamespacedKubectl(real_planes, namespace)
    slice_story.fourteen_run_and_the_fifteenth_waits(tell)
    slice_story.the_documents_commands_answer(tell)
    slice_story.a_freed_place_is_taken(tell)
    slice_story.one_container_with_two_profiles_gets_one_list(tell)
    slice_story.all_is_given_back(tell)
    assert real_planes.cdi_files() == []
    assert real_planes.slices() == []


def test_s03_d04_bad_input_is_refused_with_field_value_and_fix(real_planes: Installed, namespace: str) -> None:
    slice_story.bad_input_is_refused(slice_story.NamespacedKubectl(real_planes, namespace))


def test_s06_t04_claims_that_are_removed_or_lost_are_put_right(real_planes: Installed, namespace: str) -> None:
    tell = slice_story.NamespacedKubectl(real_planes, namespace)
    slice_story.a_removed_claim_comes_back_as_it_was(tell)
    slice_story.a_pod_without_a_place_on_its_node_is_evicted(tell)
    assert real_planes.slices() == []
