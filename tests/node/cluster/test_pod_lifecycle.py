"""When is a container over for good? Rule S06."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apportion.apis.pods import Pod
from apportion.node.cluster import pod_lifecycle
from apportion.node.cluster.pod_lifecycle import PodPhase

ENDED = {"terminated": {"exitCode": 0, "containerID": "containerd://abc"}}
FAILED = {"terminated": {"exitCode": 1, "containerID": "containerd://abc"}}
RUNS: dict[str, Any] = {"running": {}}


def life(pod: dict[str, Any] | None, uid: str = "u") -> pod_lifecycle.PodLifecycle:
    return pod_lifecycle.of(msgspec.convert(pod, Pod) if pod else None, uid, "n1")


def made(
    *,
    node: str = "n1",
    phase: str = "Running",
    policy: str = "Always",
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {"nodeName": node, "restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}], **spec},
        "status": {"phase": phase, **(status or {})},
    }


def states(**by_name: dict[str, Any]) -> dict[str, Any]:
    return {"containerStatuses": [{"name": name, "state": state} for name, state in by_name.items()]}


def test_s08_a_pod_of_another_uid_is_a_successor() -> None:
    assert life(made(), uid="other").state is PodPhase.gone
    assert life(None).over


def test_s06_a_pod_that_is_not_bound_yet_keeps_its_claims() -> None:
    assert life(made(node="", phase="Pending")).state is PodPhase.unbound
    assert not life(made(node="", phase="Pending")).over


def test_s06_a_pod_bound_to_another_node_is_over_here() -> None:
    assert life(made(node="n2")).state is PodPhase.elsewhere


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_s06_a_pod_that_ended_is_over(phase: str) -> None:
    assert life(made(phase=phase)).state is PodPhase.ended


@pytest.mark.parametrize(
    ("policy", "state", "over"),
    [
        ("Never", ENDED, True),
        ("Never", FAILED, True),
        ("OnFailure", ENDED, True),
        ("OnFailure", FAILED, False),
        ("Always", ENDED, False),
        ("Never", RUNS, False),
    ],
)
def test_s06_a_container_is_over_only_if_it_will_not_be_started_again(
    policy: str, state: dict[str, Any], *, over: bool
) -> None:
    found = life(made(policy=policy, status=states(a=state, b=RUNS)))
    assert found.over_for(["a"]) is over
    assert not found.over_for(["a", "b"])
    assert not found.over_for([])
    if over:
        assert found.ended == {"a": "abc"}


def test_s06_init_containers_may_run_again_in_a_new_sandbox() -> None:
    status = {"initContainerStatuses": [{"name": "i", "state": ENDED}]}
    init = [{"name": "i"}]
    assert not life(made(policy="Always", status=status, initContainers=init)).over_for(["i"])
    assert life(made(policy="Never", status=status, initContainers=init)).over_for(["i"])


def test_s06_a_container_with_a_restart_policy_of_its_own_is_never_over_before_its_pod() -> None:
    found = life(made(policy="Never", status=states(a=ENDED), containers=[{"name": "a", "restartPolicy": "Always"}]))
    assert not found.over_for(["a"])


def test_s08_only_a_pod_that_never_started_was_refused() -> None:
    refused = {"reason": "UnexpectedAdmissionError", "message": "no devices"}
    assert life(made(phase="Failed", status=refused)).refusal == "UnexpectedAdmissionError: no devices"
    evicted = {"reason": "Evicted", "containerStatuses": [{"name": "a", "containerID": "containerd://x"}]}
    assert life(made(phase="Failed", status=evicted)).refusal == ""
