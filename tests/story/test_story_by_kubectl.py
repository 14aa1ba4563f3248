"""Slices from request to release on the embedded cluster, with kubectl alone."""

from __future__ import annotations

import pytest

from tests.clusters import fixtures
from tests.story import telling
from tests.story.served import Served

pytestmark = pytest.mark.kubectl


@pytest.fixture
def tell(served: Served, story_namespace: str) -> telling.Teller:
    fixtures.require(("kubectl",))
    return telling.Teller(served, story_namespace)


def test_s01_s06_s07_s08_s12_m01_m03_m05_x01_the_story_holds_by_kubectl(tell: telling.Teller, served: Served) -> None:
    telling.fourteen_run_and_the_fifteenth_waits(tell)
    telling.the_documents_commands_answer(tell)
    telling.a_freed_place_is_taken(tell)
    telling.one_container_with_two_profiles_gets_one_list(tell)
    telling.all_is_given_back(tell)
    assert served.left_on_nodes() == []


def test_s03_d04_bad_input_is_refused_with_field_value_and_fix(tell: telling.Teller) -> None:
    telling.bad_input_is_refused(tell)
