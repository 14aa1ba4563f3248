"""A node goes down and comes back: its GPUs and `/run` are empty, and every pod gets a new slice or ends. Rule S08."""

from __future__ import annotations

from typing import Any

import pytest

from tests.environments.installed import Installed
from tests.environments.waiting import until
from tests.real.slice_pods import SlicePod
from tests.story.workloads import Workloads, assert_no_overlap

pytestmark = pytest.mark.real

Json = dict[str, Any]
REPLICAS = 4


def test_s08_after_a_reboot_each_pod_is_failed_without_claims_or_runs_on_a_new_slice(
    real_planes: Installed, namespace: str
) -> None:
    work = Workloads(real_planes, namespace)
    work.create("Deployment", "web", replicas=REPLICAS, profiles=("1g.5gb", "2g.10gb"))
    bare = SlicePod(real_planes, namespace, "bare")
    bare.await_running(within=90)
    earlier = work.wait_running(REPLICAS + 1)
    old = {container for pod in earlier for container in containers(pod)}
    lost = {one["uuid"] for one in real_planes.slices()}
    assert len(lost) == 2 * REPLICAS + 1

    real_planes.node.power_off()
    real_planes.node.path("/var/lib/apportion/emulated-gpus.json").unlink()
    real_planes.node.power_on()
    real_planes.await_ready(within=180)

    until(lambda: len(replicas(work, old)) == REPLICAS, "the Deployment is back at full count", within=120)
    until(lambda: all(settled(work, pod, old) for pod in earlier), "each earlier pod runs anew or is over", within=60)
    assert_no_overlap(real_planes.claims())
    work.assert_each_sees_its_own(work.running())
    standing = {one["uuid"] for one in real_planes.slices()}
    assert not standing & lost
    assert standing == {claim["status"]["migUUID"] for claim in real_planes.claims()}

    work.delete("Deployment", "web")
    bare.delete()
    for pod in work.pods():  # those that failed keep their objects
        work.delete_pod(pod["metadata"]["name"])
    work.wait_nothing_left()


def replicas(work: Workloads, old: set[str]) -> list[Json]:
    return [pod for pod in work.running() if "app" in pod["metadata"].get("labels", {}) and anew(pod, old)]


def settled(work: Workloads, earlier: Json, old: set[str]) -> bool:
    """Gone or Failed and without claims, or running anew with slices that exist now."""
    uid = earlier["metadata"]["uid"]
    pod = next((pod for pod in work.pods() if pod["metadata"]["uid"] == uid), None)
    claims = [claim for claim in work.cluster.claims() if claim["spec"]["podRef"]["uid"] == uid]
    if pod is None or pod["status"].get("phase") == "Failed":
        return not claims
    return anew(pod, old) and all(claim["status"]["state"] == "inUse" for claim in claims)


def anew(pod: Json, old: set[str]) -> bool:
    """Ready with containers that were started since: the last status of a killed kubelet still says Running."""
    conditions = {entry["type"]: entry["status"] for entry in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not old & set(containers(pod))


def containers(pod: Json) -> list[str]:
    return [status["containerID"] for status in pod["status"].get("containerStatuses", ()) if "containerID" in status]
