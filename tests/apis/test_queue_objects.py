"""Queues and PodGroups as decisions use them: exact integers, defaults, and what is wrong with a stored object."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.apis import durations, meta, priorities
from apportion.apis.custom_resources import pod_groups, queues
from apportion.apis.custom_resources.pod_groups import PodGroup, PodGroupError
from apportion.apis.custom_resources.queues import Queue, QueueError, QueueSettings
from apportion.apis.errors import InputError


def queue(spec: str, name: str = "q") -> QueueSettings:
    """A queue whose spec is this text, so that numbers are spelt as they come from an API server."""
    text = f'{{"metadata": {{"name": "{name}"}}, "spec": {spec}}}'
    return queues.read(msgspec.json.decode(text.encode(), type=Queue))


def gpu(**numbers: str) -> queues.ResourceSettings:
    fields = ", ".join(f'"{field}": {number}' for field, number in numbers.items())
    return queue(f'{{"resources": {{"gpu": {{{fields}}}}}}}').gpu


def group(**spec: Any) -> pod_groups.GroupSettings:
    return pod_groups.read(msgspec.json.decode(json.dumps({"spec": spec}).encode(), type=PodGroup))


@pytest.mark.parametrize(
    ("number", "milli"),
    [
        ("8", 8000),
        ("0.1", 100),
        ("0.3", 300),
        ("1.001", 1001),
        ("0.57", 570),
        ("2.5e1", 25_000),
        ("1e3", 1_000_000),
        ("1e+21", 10**24),
        ("-1", -1),
        ("-1.0", -1),
        ("0", 0),
        ("0.3333", 333),  # rounded down: three of them fit into one GPU
        ("0.0009", 0),
        ("1e-300", 0),
    ],
)
def test_q01_gpus_are_exact_thousandths_and_finer_amounts_are_rounded_down(number: str, milli: int) -> None:
    found = gpu(quota=number, limit=number)
    assert (found.quota, found.limit) == (milli, milli)


def test_q01_cpu_is_in_millicores_and_memory_in_megabytes() -> None:
    found = queue('{"resources": {"cpu": {"quota": 1500.9}, "memory": {"quota": 2.5, "limit": 64000}}}')
    assert (found.cpu.quota, found.memory.quota, found.memory.limit) == (1500, 2_500_000, 64 * 10**9)


@pytest.mark.parametrize(
    ("number", "weight"),
    [("0.1", Fraction(1, 10)), ("1e3", Fraction(1000)), ("0", Fraction(0)), ("1e300", Fraction(10**300))],
)
def test_q01_weights_are_exact_rationals(number: str, weight: Fraction) -> None:
    assert gpu(overQuotaWeight=number).weight == weight


@given(st.floats(min_value=0, max_value=1e12, allow_nan=False))
def test_q01_a_number_has_the_value_of_its_decimal_text(number: float) -> None:
    text = json.dumps(number)
    found = gpu(quota=text, overQuotaWeight=text)
    assert found.weight == Fraction(text)
    assert found.quota <= Fraction(text) * 1000 < found.quota + 1


def test_q01_an_empty_queue_has_no_quota_of_gpus_no_limit_weight_one_and_priority_100() -> None:
    found = queue("{}")
    assert (found.gpu.quota, found.gpu.limit, found.gpu.weight) == (0, -1, Fraction(1))
    assert (found.parent, found.priority) == ("", 100)
    assert (found.preempt_min_runtime, found.reclaim_min_runtime) == (None, None)


def test_q01_cpu_and_memory_have_an_unlimited_quota_unless_the_queue_states_them() -> None:
    found = queue('{"resources": {"gpu": {"quota": 2}}}')
    for resource in (found.cpu, found.memory):
        assert (resource.quota, resource.limit, resource.weight) == (-1, -1, Fraction(1))
    found = queue('{"resources": {"cpu": {"limit": 8000}, "memory": {}}}')
    assert (found.cpu.quota, found.cpu.limit) == (0, 8000)
    assert (found.memory.quota, found.memory.limit, found.memory.weight) == (0, -1, Fraction(1))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ('{"resources": {"gpu": {"quota": -2}}}', r"spec\.resources\.gpu\.quota: '-2': use a number of 0 or more"),
        ('{"resources": {"cpu": {"limit": -0.5}}}', r"spec\.resources\.cpu\.limit"),
        ('{"resources": {"memory": {"overQuotaWeight": -1}}}', r"spec\.resources\.memory\.overQuotaWeight"),
        ('{"resources": {"gpu": {"overQuotaWeight": 1e999999999}}}', "overQuotaWeight"),
        ('{"resources": {"gpu": {"quota": 1e-999999999}}}', "quota"),
        ('{"parentQueue": "q"}', r"spec\.parentQueue: 'q': a queue cannot be its own parent"),
        ('{"preemptMinRuntime": "soon"}', r"spec\.preemptMinRuntime: 'soon': use a duration such as 90s"),
        ('{"reclaimMinRuntime": "-5m"}', r"spec\.reclaimMinRuntime"),
    ],
)
def test_q12_a_stored_queue_that_is_wrong_is_named_by_field(spec: str, field: str) -> None:
    with pytest.raises(QueueError, match=field):
        queue(spec)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", 0),
        ("0s", 0),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("250ms", 250),
        ("1ns", 1),
        ("1us1ns", 1),
        ("0.1s", 100),
    ],
)
def test_q10_durations_are_whole_milliseconds(text: str, found: int) -> None:
    assert durations.milliseconds(text) == found
    assert queue(f'{{"preemptMinRuntime": "{text}"}}').preempt_min_runtime == found


@pytest.mark.parametrize("text", ["", "5", "-1s", "+1s", "1d", "1 h", "h", ".5h", "1.h", "1h" * 20, "٣s", "10m\n"])
def test_q10_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(InputError, match="use a duration such as"):
        durations.milliseconds(text)


def test_q12_a_status_is_written_as_the_schema_has_it() -> None:
    status = queues.QueueStatus(allocated_non_preemptible={"nvidia.com/gpu": "1500m"}, child_queues=["a"])
    assert meta.to_wire(status) == {"allocatedNonPreemptible": {"nvidia.com/gpu": "1500m"}, "childQueues": ["a"]}


@pytest.mark.parametrize(
    ("priority", "stated", "preemptible"),
    [
        (50, "", True),
        (99, "", True),
        (100, "", False),
        (125, "preemptible", True),
        (50, "non-preemptible", False),
        (50, "other", True),
    ],
)
def test_q05_priority_decides_unless_something_is_stated(priority: int, stated: str, *, preemptible: bool) -> None:
    assert priorities.is_preemptible(priority, stated) is preemptible


def test_q07_a_group_has_its_subgroups_with_pods_and_the_way_up_from_each() -> None:
    found = group(
        minMember=5,
        queue="q",
        priorityClassName="build",
        preemptibility="preemptible",
        subGroups=[
            {"name": "decode"},
            {"name": "leader", "parent": "decode"},
            {"name": "workers", "parent": "decode", "minMember": 3},
            {"name": "router", "minMember": 1},
        ],
    )
    assert (found.minimum, found.queue, found.priority_class, found.preemptibility) == (5, "q", "build", "preemptible")
    assert [(each.name, each.minimum, each.parents) for each in found.subgroups] == [
        ("leader", 1, ("decode",)),
        ("workers", 3, ("decode",)),
        ("router", 1, ()),
    ]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"minMember": 0}, r"spec\.minMember: 0: use 1 or more"),
        ({"preemptibility": "maybe"}, r"spec\.preemptibility: 'maybe'"),
        ({"subGroups": [{"name": "a"}, {"name": "a"}]}, r"spec\.subGroups\[1\]\.name"),
        ({"subGroups": [{"name": "a", "minMember": -1}]}, r"spec\.subGroups\[0\]\.minMember"),
        ({"subGroups": [{"name": "a", "parent": "b"}]}, r"spec\.subGroups\[0\]\.parent: 'b': parent must be"),
        ({"subGroups": [{"name": "a", "parent": "a"}]}, "each other's parents"),
        (
            {
                "subGroups": [
                    {"name": "a", "parent": "b"},
                    {"name": "b", "parent": "c"},
                    {"name": "c", "parent": "a"},
                    {"name": "d", "parent": "a"},
                ]
            },
            "each other's parents",
        ),
        (
            {
                "subGroups": [
                    {"name": "d", "parent": "a"},
                    {"name": "a", "parent": "b"},
                    {"name": "b", "parent": "c"},
                    {"name": "c", "parent": "a"},
                ]
            },
            "each other's parents",
        ),
    ],
)
def test_q07_a_stored_group_that_is_wrong_is_named_by_field(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(PodGroupError, match=says):
        group(**spec)


def test_q12_an_unschedulable_group_has_reasons_with_the_numbers_of_its_queue() -> None:
    details = pod_groups.QueueDetails(
        name="q",
        queue_deserved_resources={"nvidia.com/gpu": "4"},
        queue_allocated_non_preemptible_resources={"nvidia.com/gpu": "3500m"},
        pod_group_requested_non_preemptible_resources={"nvidia.com/gpu": "1"},
    )
    reason = pod_groups.UnschedulableReason(
        reason=pod_groups.NON_PREEMPTIBLE_OVER_QUOTA,
        message="m",
        details=pod_groups.UnschedulableDetails(queue_details=details),
    )
    written = msgspec.to_builtins(pod_groups.SchedulingCondition(reasons=[reason], transition_id="1"))
    assert written["transitionID"] == "1"
    assert written["reasons"][0]["details"]["queueDetails"] == {
        "name": "q",
        "queueDeservedResources": {"nvidia.com/gpu": "4"},
        "queueAllocatedNonPreemptibleResources": {"nvidia.com/gpu": "3500m"},
        "podGroupRequestedNonPreemptibleResources": {"nvidia.com/gpu": "1"},
    }
    assert (written["type"], written["nodePool"], written["status"]) == ("UnschedulableOnNodePool", "default", "True")
