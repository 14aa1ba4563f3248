"""Whatever people write, the core answers with its own errors or a refusal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.apis import names
from apportion.apis.errors import InputError
from apportion.apis.pods import Pod
from apportion.apis.request import POLICIES, Request, parse_pod
from apportion.core import group_decision
from apportion.core.explanations import messages
from apportion.core.groups import Group
from apportion.core.policies import Policy
from tests.builders.accelerators import A100, T4
from tests.builders.fleets import fleet_of, node_facts
from tests.builders.pods import pod_request

RESOURCES = (
    "cpu",
    "memory",
    names.NVIDIA_GPU,
    "mig.das.com/1g.5gb",
    "mig.das.com/9g.99gb",
    "mig.das.com/-",
    "nvidia.com/mig-",
)
AMOUNTS = ("0", "1", "7", "-1", "0.5", "1e3", "1e-3", "NaN", "", "10Gi", "1" + "0" * 30, "999", "½")
amounts = st.one_of(st.sampled_from(AMOUNTS), st.text(max_size=8), st.integers(-(10**20), 10**20), st.floats())
annotations = st.dictionaries(
    st.sampled_from(
        (
            names.GPU_FRACTION,
            names.GPU_SHARE_MEMORY,
            names.GPU_FRACTION_DEVICES,
            names.GPU_FRACTION_CONTAINER,
            names.POLICY,
        )
    ),
    st.one_of(st.sampled_from((*AMOUNTS, "0.5", "2000", str(10**18), "pack")), st.text(max_size=6)),
    max_size=3,
)
container = st.fixed_dictionaries(
    {
        "name": st.sampled_from("abc"),
        "resources": st.fixed_dictionaries(
            {"limits": st.dictionaries(st.sampled_from(RESOURCES), amounts, max_size=3)}
        ),
    }
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(container, max_size=2),
    st.lists(container, max_size=2),
    annotations,
    st.sampled_from((names.DAS_SCHEDULER, names.KAI_SCHEDULER)),
)
def test_d04_nothing_leaves_the_one_exception_tree(
    apps: list[dict[str, Any]], inits: list[dict[str, Any]], notes: dict[str, str], scheduler: str
) -> None:
    spec = {"schedulerName": scheduler, "containers": apps, "initContainers": inits}
    wire = {"metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": notes}, "spec": spec}
    request = _read(wire)
    if isinstance(request, InputError):
        assert request.code
        assert request.field
        return
    fleet = fleet_of((node_facts("n"), [(A100, True), (T4, False)]))
    outcome = group_decision.decide(fleet, Group.of(request), Policy())
    if isinstance(outcome, group_decision.Refusal):
        assert messages.of(outcome)


def _read(wire: dict[str, Any]) -> Request | InputError:
    try:
        return parse_pod(msgspec.convert(wire, Pod))
    except InputError as refused:
        return refused


@pytest.mark.parametrize("policy", POLICIES)
def test_d04_absurd_amounts_are_capped_alike_on_both_paths(policy: str) -> None:
    """Kubernetes caps a quantity at 2^63-1; pods and nodes that say so must not break anything."""
    absurd = 2**63 - 1
    outcomes = []
    for plain in (True, False):
        fleet = fleet_of(
            (node_facts("big", cpu=absurd, **{names.NVIDIA_GPU: absurd}), []),
            (node_facts("full", cpu=10), [(T4, False)]),
            (node_facts("small"), [(A100, True), (T4, False)]),
        )
        for number in range(3):
            fleet.add_pod(pod_request(f"bound-{number}", cpu="10E"), "full")
        asked = [
            pod_request("more-than-all", cpu="1" + "0" * 30, gpus=1),
            pod_request("all", cpu=str(absurd // 1000)),
            pod_request("devices", gpus=absurd),
            pod_request("memory", limits={"memory": "10E"}),
            pod_request("plain", gpus=1),
            pod_request("share", fraction="0.5"),
        ]
        outcomes.append(
            [group_decision.decide(fleet, Group.of(request), Policy(policy), plain=plain) for request in asked]
        )
    assert outcomes[0] == outcomes[1]
    assert [isinstance(outcome, group_decision.Statement) for outcome in outcomes[0]] == [
        True,
        False,
        False,
        False,
        True,
        True,
    ]
