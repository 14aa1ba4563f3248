"""Whole GPUs, shares and slices count in one unit."""

from __future__ import annotations

from apportion.core import gpu_usage, group_decision
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.policies import Policy
from tests.builders.accelerators import A100, T4
from tests.builders.fleets import fleet_of, node_facts
from tests.builders.pods import pod_request

RTX = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


def mixed() -> Fleet:
    return fleet_of((node_facts("n"), [(A100, True), (RTX, True), (T4, False), (T4, False), ("NVIDIA L40S", False)]))


def charged(fleet: Fleet, **wants: object) -> tuple[int | None, int]:
    request = pod_request(**wants)
    before = gpu_usage.wanted(fleet, request)
    assert isinstance(group_decision.decide(fleet, Group.of(request), Policy("first-fit")), group_decision.Statement)
    return before, gpu_usage.held(fleet, request)


def test_q08_everything_is_charged_in_milli_gpu() -> None:
    assert charged(mixed(), gpus=2) == (2000, 2000)
    assert charged(mixed(), fraction="0.25") == (250, 250)
    assert charged(mixed(), slices={"1g.5gb": 2, "3g.20gb": 1}) == (750, 750)
    assert charged(mixed(), slices={"1g.24gb": 1}) == (250, 250)
    assert charged(mixed(), cpu="1") == (0, 0)


def test_g04_a_share_in_mib_is_rounded_up_and_judged_by_the_smallest_gpu_while_it_waits() -> None:
    fleet = mixed()
    assert gpu_usage.wanted(fleet, pod_request(memory=2000)) == 131  # of 15360 MiB, 130.2
    assert gpu_usage.wanted(fleet, pod_request(memory=20_000)) == 435  # only the larger card could hold it
    assert gpu_usage.wanted(fleet, pod_request(memory=10**6)) is None
    assert charged(fleet, memory=2000) == (131, 131)


def test_q08_what_no_gpu_could_serve_has_no_charge() -> None:
    assert gpu_usage.wanted(fleet_of((node_facts("n"), [])), pod_request(slices={"1g.5gb": 1})) is None
