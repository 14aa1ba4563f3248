"""Slices on a real kubelet while planes and kubelet are killed."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.environments.installed import AGENT, SCHEDULER, Installed
from tests.environments.waiting import until
from tests.real.slice_pods import STUBBORN, SlicePod

pytestmark = pytest.mark.real


def test_s07_each_container_prints_the_uuid_of_its_own_claim(real_planes: Installed, namespace: str) -> None:
    pods = [SlicePod(real_planes, namespace, f"p{number}") for number in range(4)]
    for pod in pods:
        pod.await_running()
    seen = [pod.printed_uuid() for pod in pods]
    assert seen == [pod.mig_uuid() for pod in pods]
    assert len(set(seen)) == 4
    assert {pod.claim()["status"]["state"] for pod in pods} == {"inUse"}


def test_s08_deletion_frees_claim_slice_and_cdi_file_within_ten_seconds(real_planes: Installed, namespace: str) -> None:
    before = real_planes.cdi_files(), real_planes.slices()
    pod = SlicePod(real_planes, namespace, "p")
    pod.await_running()
    assert (real_planes.cdi_files(), real_planes.slices()) != before
    pod.delete()
    until(lambda: not pod.processes(), "its processes end")
    pod.await_gone(within=10)
    assert (real_planes.cdi_files(), real_planes.slices()) == before


def test_s08_a_container_that_crashes_keeps_its_slice(real_planes: Installed, namespace: str) -> None:
    pod = SlicePod(real_planes, namespace, "p")
    pod.await_running()
    claim, printed = pod.claim(), pod.printed_uuid()
    pod.crash()
    until(lambda: pod.status["restartCount"] == 1 and pod.runs(), "it runs again", within=60)
    assert pod.printed_uuid() == printed
    assert pod.claim()["metadata"]["uid"] == claim["metadata"]["uid"]
    assert pod.mig_uuid() == claim["status"]["migUUID"]


def test_s07_the_agent_registers_again_with_a_kubelet_that_was_killed(real_planes: Installed, namespace: str) -> None:
    pod = SlicePod(real_planes, namespace, "before")
    pod.await_running()
    claim, process = pod.claim(), pod.first_process()

    real_planes.node.kubelet.kill()
    real_planes.node.start_kubelet()
    real_planes.node.await_ready()
    until(lambda: _offered(real_planes, "mig.das.com/1g.5gb") == 14, "the kubelet offers the slices again")

    later = SlicePod(real_planes, namespace, "after")
    later.await_running(within=60)
    assert later.printed_uuid() == later.mig_uuid()
    assert pod.first_process() == process
    assert pod.claim()["status"] == claim["status"]


def test_s08_an_agent_that_was_killed_adopts_what_runs(real_planes: Installed, namespace: str) -> None:
    pod = SlicePod(real_planes, namespace, "before")
    pod.await_running()
    claim, process, slices = pod.claim(), pod.first_process(), real_planes.slices()

    restarts = _restarts(real_planes, AGENT)
    real_planes.kill(AGENT)
    until(lambda: _restarts(real_planes, AGENT) > restarts, "the kubelet starts it again", within=60)
    real_planes.await_ready(AGENT)

    assert pod.first_process() == process
    assert pod.claim()["status"] == claim["status"]
    assert real_planes.slices() == slices
    later = SlicePod(real_planes, namespace, "after")
    later.await_running(within=60)
    assert later.printed_uuid() == later.mig_uuid()


def test_s08_what_ended_while_the_agent_was_away_is_freed(real_planes: Installed, namespace: str) -> None:
    pod = SlicePod(real_planes, namespace, "p")
    pod.await_running()
    for pid in (agents := real_planes.processes(AGENT)):
        os.kill(pid, signal.SIGSTOP)
    pod.delete()
    until(lambda: not pod.processes(), "its processes end", within=60)
    assert real_planes.claims(pod.uid)
    for pid in agents:
        os.kill(pid, signal.SIGKILL)
    pod.await_gone(within=60)
    real_planes.await_ready(AGENT)


def test_s06_a_force_deleted_pod_keeps_its_slice_while_its_process_lives(
    real_planes: Installed, namespace: str
) -> None:
    held = [SlicePod(real_planes, namespace, f"p{number}", profile="7g.40gb", script=STUBBORN) for number in range(2)]
    for pod in held:
        pod.await_running()
    waiting = SlicePod(real_planes, namespace, "waiting", profile="7g.40gb")

    # A kubelet that hangs: the API server forgets the pod at once, its process runs on.
    real_planes.node.kubelet.signal(signal.SIGSTOP)
    try:
        held[0].delete("--grace-period=0", "--force")
        until(lambda: not _exists(real_planes, namespace, "p0"), "the pod object is gone")
        for _ in range(25):
            assert held[0].processes()
            assert held[0].claim()["status"]["state"] == "inUse"
            assert not real_planes.claims(waiting.uid)
            time.sleep(0.2)
    finally:
        real_planes.node.kubelet.signal(signal.SIGCONT)

    until(lambda: real_planes.claims(waiting.uid), "the place is given away", within=60)
    assert not held[0].processes()
    waiting.await_running(within=60)
    assert waiting.printed_uuid() == waiting.mig_uuid()
    for pod in held[1:]:
        pod.delete("--grace-period=0", "--force")


def test_s08_a_scheduler_that_was_killed_goes_on(real_planes: Installed, namespace: str) -> None:
    pod = SlicePod(real_planes, namespace, "before")
    pod.await_running()
    real_planes.kill(SCHEDULER)
    later = SlicePod(real_planes, namespace, "after")
    later.await_running(within=60)
    assert later.printed_uuid() == later.mig_uuid()
    assert pod.printed_uuid() == pod.mig_uuid()


def test_m05_s12_kubectl_describe_node_shows_the_slices(real_planes: Installed) -> None:
    wanted = {"mig.das.com/1g.5gb": "14", "mig.das.com/7g.40gb": "2", "gpu.das.com/mem": "80"}

    def shown() -> dict[str, str]:
        allocatable = real_planes.kubectl("describe", "node", real_planes.node.name).partition("Allocatable:")[2]
        return {resource: allocatable.partition(f"{resource}:")[2].split(maxsplit=1)[0] for resource in wanted}

    # The kubelet writes the status of its node a moment after the agent is ready.
    until(lambda: shown() == wanted, "kubectl describe shows what the node can allocate")


def _offered(planes: Installed, resource: str) -> int:
    node = planes.cluster.api.get(f"/api/v1/nodes/{planes.node.name}")
    return int(node["status"]["allocatable"].get(resource, "0"))


def _restarts(planes: Installed, app: str) -> int:
    return sum(status["restartCount"] for pod in planes.pods(app) for status in pod["status"]["containerStatuses"])


def _exists(planes: Installed, namespace: str, name: str) -> bool:
    return planes.cluster.api.exists(f"/api/v1/namespaces/{namespace}/pods/{name}")
