"""D01: whether static devices or dynamic slices serve a pod."""

from __future__ import annotations

import pytest

from apportion.admission.offers import Offers
from apportion.admission.static_or_dynamic import Mechanism, decide, preference
from apportion.apis.errors import RequestError
from tests.admission.samples import both, created, patch, resources
from tests.builders.pods import container, pod

STATIC, DYNAMIC = Mechanism.static, Mechanism.dynamic


def offers(*, static: str = "", dynamic: str = "", known: str = "1g.5gb 1g.10gb 2g.10gb 2g.20gb 7g.70gb") -> Offers:
    return Offers(frozenset(static.split()), frozenset(dynamic.split()), frozenset(known.split()))


@pytest.mark.parametrize(
    ("wanted", "static", "dynamic", "preferred", "answer"),
    [
        ("2g.20gb", "2g.20gb", "", None, STATIC),
        ("2g.20gb", "1g.10gb", "", None, STATIC),  # a lower tier
        ("1g.10gb", "2g.20gb", "1g.10gb", None, DYNAMIC),  # a higher tier is none to fall back to
        ("1g.5gb", "", "1g.5gb", None, DYNAMIC),
        ("1g.5gb", "", "1g.5gb", STATIC, DYNAMIC),  # a preference does not create devices
        ("1g.5gb", "1g.5gb", "1g.5gb", None, STATIC),
        ("1g.5gb", "1g.5gb", "1g.5gb", DYNAMIC, DYNAMIC),
        ("2g.20gb", "1g.10gb", "2g.20gb", DYNAMIC, DYNAMIC),
        ("2g.20gb", "1g.10gb", "2g.20gb", None, STATIC),
        ("1g.5gb", "", "", None, DYNAMIC),  # nowhere yet
        ("1g.5gb", "", "", STATIC, STATIC),
        ("1g.5gb 2g.10gb", "1g.5gb", "1g.5gb 2g.10gb", None, DYNAMIC),  # the only way to serve both
        ("1g.5gb 2g.10gb", "1g.5gb", "", None, STATIC),
    ],
)
def test_d01_one_answer_per_pod(
    wanted: str, static: str, dynamic: str, preferred: Mechanism | None, answer: Mechanism
) -> None:
    assert decide(wanted.split(), offers(static=static, dynamic=dynamic), preferred=preferred) is answer


def test_d01_a_mixture_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        decide(["2g.20gb", "1g.5gb"], offers(static="2g.20gb", dynamic="1g.5gb"))
    assert caught.value.code == "MixedMechanisms"
    with pytest.raises(RequestError, match="split the pod"):
        decide(["2g.20gb"], offers(static="2g.20gb"), bound_to_dynamic=["1g.5gb"])


def test_d01_static_devices_keep_names_and_scheduler() -> None:
    here = offers(static="2g.20gb 1g.10gb")
    assert patch(pod("story", containers=[container(limits={"nvidia.com/mig-2g.20gb": "1"})]), here) == []


@pytest.mark.parametrize("place", ["pod", "namespace"])
def test_d01_where_both_exist_an_annotation_chooses(place: str) -> None:
    here = offers(static="1g.5gb", dynamic="1g.5gb")
    asks = container(limits={"nvidia.com/mig-1g.5gb": "1"})
    chosen = {"apportion.io/mig": "dynamic"}
    if place == "pod":
        after = created(
            pod("story", containers=[asks], annotations=chosen),
            here,
            namespace_annotations={"apportion.io/mig": "static"},
        )
    else:
        after = created(pod("story", containers=[asks]), here, namespace_annotations=chosen)
    assert resources(after) == both({"mig.das.com/1g.5gb": "1", "gpu.das.com/mem": "5"})


def test_d01_an_unreadable_wish_is_refused_with_the_words_that_exist() -> None:
    with pytest.raises(RequestError, match="set static or dynamic"):
        preference({"apportion.io/mig": "both"}, {})
    assert preference({}, {"apportion.io/mig": "static"}) is STATIC
    assert preference({}, {}) is None
