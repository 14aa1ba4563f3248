"""Every policy means the same for slices, shares, whole GPUs and several of them.

half    half of its GPUs is taken      first by name
empty   nothing is taken
tight   nearly everything is taken, and much is left because it is large
small   half is taken, and little is left because it is small
"""

from __future__ import annotations

import pytest

from apportion.core import cycle
from apportion.core.facts import SlicePlacement
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.policies import Policy
from tests.core.making import A100, T4, fleet_of, node, pod

CHOICES = {"first-fit": "a-half", "spread": "b-empty", "pack": "c-tight", "best-fit": "d-small"}
KINDS = {
    "slice": {"slices": {"2g.10gb": 1}},
    "slices": {"slices": {"2g.10gb": 1, "1g.5gb": 1}},
    "share": {"fraction": "0.5"},
    "share in MiB": {"memory": 7000},
    "share of several": {"fraction": "0.4", "devices": 2},
    "whole": {"gpus": 1},
    "several whole": {"gpus": 2},
}


GPUS = {"a-half": 8, "b-empty": 8, "c-tight": 16, "d-small": 4}
CPU_PER_GPU = 8000


def fill(given: Fleet, name: str, gpus: int, *, sliced: bool) -> None:
    for number in range(gpus):
        wants = {"slices": {"7g.40gb": 1}} if sliced else {"gpus": 1}
        filler = pod(f"{name}-{number}", cpu=f"{CPU_PER_GPU}m", **wants)
        if sliced:
            given.add_slice(f"{name}-{number}", SlicePlacement(f"{name}-gpu{number}", "7g.40gb", 0, 8), filler.uid)
        given.add_pod(filler, name)


def crowded(*, sliced: bool) -> Fleet:
    gpu = (A100 if sliced else T4, sliced)
    given = fleet_of(*((node(name, cpu=CPU_PER_GPU * count), [gpu] * count) for name, count in GPUS.items()))
    fill(given, "a-half", 4, sliced=sliced)
    fill(given, "c-tight", 12, sliced=sliced)
    fill(given, "d-small", 2, sliced=sliced)
    return given


@pytest.mark.parametrize("path", ["plain", "fast"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", CHOICES)
def test_s05_each_policy_means_the_same_for_every_kind_of_request(policy: str, kind: str, path: str) -> None:
    given = crowded(sliced="slices" in KINDS[kind])
    plan = cycle.decide(given, Group.of(pod(**KINDS[kind])), Policy(policy), plain=path == "plain")
    assert isinstance(plan, cycle.Statement)
    expected = CHOICES[policy]
    if policy == "best-fit" and "slices" in KINDS[kind]:
        expected = "a-half"  # slices look at their GPU, and all free ones are alike here: the first by name
    assert plan.binds[0].node == expected


@pytest.mark.parametrize("kind", KINDS)
def test_s05_fragmentation_joins_what_is_begun_and_leaves_the_empty_node_alone(kind: str) -> None:
    given = crowded(sliced="slices" in KINDS[kind])
    policy = Policy("fragmentation")
    first = cycle.decide(given, Group.of(pod(cpu="4", **KINDS[kind])), policy)
    second = cycle.decide(given, Group.of(pod(cpu="4", **KINDS[kind])), policy)
    assert isinstance(first, cycle.Statement)
    assert isinstance(second, cycle.Statement)
    assert "b-empty" not in {first.binds[0].node, second.binds[0].node}
