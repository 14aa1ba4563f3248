"""The embedded cluster's default scheduler refuses pods in the words that kube-scheduler was recorded with."""

from __future__ import annotations

import pytest

from apportion.apis.request import parse_pod
from apportion.core.filters import Checks
from apportion.core.reasons import Code, Reason
from pocketkube.controllers.scheduling import messages, scheduler
from pocketkube.controllers.scheduling.messages import NOT_NAMED
from tests.differential import cases, judging

# Words of volume plug-ins, which the embedded scheduler leaves to its volume controller; "recorded" is the recorder's.
OTHERS = ("PersistentVolumeClaims", "volume", "recorded")
MANY = 150
PODS_FULL = Reason(Code.PODS, "pods", 1, 0, 110)


def test_pods_that_fit_nowhere_are_told_so_in_kube_schedulers_words() -> None:
    compared = 0
    for world in cases.load():
        fleet = judging._fleet(world)
        for asked in world["asked"]:
            if any(words in asked["message"] for words in OTHERS):
                continue
            request = parse_pod(judging._pod(asked["pod"]))
            checks = Checks(fleet, request)
            refusals = [scheduler.against(checks, node, request) for node in fleet]
            ours = messages.sentence(refusals).partition(", preemption: ")[0]
            assert ours == asked["message"], f"world {world['seed']}"
            compared += 1
    assert compared >= MANY


@pytest.mark.parametrize(
    ("refusals", "preemption"),
    [
        ([[Reason(Code.RESOURCE, "cpu", 2000, 1000, 4000)]], "1 No preemption victims found for incoming pod"),
        ([[Reason(Code.RESOURCE, "cpu", 9000, 1000, 4000)]], "1 Preemption is not helpful for scheduling"),
        ([[PODS_FULL, Reason(Code.RESOURCE, "cpu", 9000, 1, 4)]], "1 Preemption is not helpful for scheduling"),
        ([[PODS_FULL]], "1 No preemption victims found for incoming pod"),
        ([[NOT_NAMED]], "1 Preemption is not helpful for scheduling"),
        ([[Reason(Code.NEAR)]], "1 Preemption is not helpful for scheduling"),
        ([[Reason(Code.SPREAD_LABEL)]], "1 Preemption is not helpful for scheduling"),
        (
            [[Reason(Code.APART)], [Reason(Code.PORTS)], [Reason(Code.TAINT)]],
            "1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod",
        ),
    ],
)
def test_what_preemption_could_do_is_told_per_node(refusals: list[list[Reason]], preemption: str) -> None:
    said = messages.sentence(refusals)
    assert said.endswith(f", preemption: 0/{len(refusals)} nodes are available: {preemption}.")


def test_a_pod_that_never_preempts_is_told_so() -> None:
    said = messages.sentence([[PODS_FULL]], preempts=False)
    assert said == (
        "0/1 nodes are available: 1 Too many pods. no new claims to deallocate, "
        "preemption: not eligible due to preemptionPolicy=Never."
    )
