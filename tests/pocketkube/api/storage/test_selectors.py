from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketkube.api.status import ApiStatus
from pocketkube.api.storage import selectors

LABELS = {"app": "web", "tier": "1", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web", True),
        ("app!=web", False),
        ("app!=x", True),
        ("missing!=x", True),
        ("app", True),
        ("!app", False),
        ("! missing", True),
        ("app in (web, db)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("missing notin (db)", True),
        ("missing in (db)", False),
        ("tier>0", True),
        ("tier<1", False),
        ("app>0", False),
        ("empty=", True),
        ("empty in ()", True),
        ("empty in (,x)", True),
        ("app=web,tier=1", True),
        ("app=web,tier=2", False),
        ("x.io/name!=a,app", True),
    ],
)
def test_label_selectors_match_as_kubernetes_says(*, text: str, matches: bool) -> None:
    assert all(part.matches(LABELS) for part in selectors.parse_labels(text)) is matches


@pytest.mark.parametrize("text", ["a b", "=b", "a,,b", "a in x", "a in (x", "-a", "a=-b", "a>x", "a===b", ",", "a in"])
def test_bad_label_selectors_are_refused_as_bad_requests(text: str) -> None:
    with pytest.raises(ApiStatus) as caught:
        selectors.parse_labels(text)
    assert caught.value.code == 400


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused_with_a_status(text: str) -> None:
    for parse in (selectors.parse_labels, selectors.parse_fields):
        with contextlib.suppress(ApiStatus):
            parse(text)


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "x", "y"])))
def test_opposite_operators_never_agree(labels: dict[str, str]) -> None:
    for one, other in (("a=x", "a!=x"), ("a in (x,y)", "a notin (x,y)"), ("a", "!a")):
        (first,), (second,) = selectors.parse_labels(one), selectors.parse_labels(other)
        assert first.matches(labels) is not second.matches(labels)


def test_field_selectors_unescape_values() -> None:
    (term,) = selectors.parse_fields(r"a.b=x\,y\=z")
    assert (term.path, term.value, term.equal) == ("a.b", "x,y=z", True)
    assert [term.equal for term in selectors.parse_fields("a=1,b==2,c!=3")] == [True, True, False]


def test_label_selector_objects_match_nothing_when_absent_and_everything_when_empty() -> None:
    assert not selectors.from_label_selector(None)({})
    assert selectors.from_label_selector({})({})
    expressions = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    assert not selectors.from_label_selector(expressions)(LABELS)
