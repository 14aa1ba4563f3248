"""Pods from binding to removal, seen through the API."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.cluster import errors
from apportion.cluster.client import PatchType
from pocketkube.kubelet.kubelet import Kubelet
from tests.pocketkube.cluster import RunningCluster, pod
from tests.pocketkube.kubelet.toyplugin import ToyPlugin

RESOURCE = "mig.das.com/1g.5gb"
Json = dict[str, Any]


def node_of(cluster: RunningCluster, name: str = "node-1") -> Kubelet:
    return cluster.pocketkube.kubelets[name]


async def test_a_pod_runs_prints_and_succeeds(cluster: RunningCluster) -> None:
    await cluster.create(
        kinds.PODS,
        pod(
            "p",
            "sh",
            "-c",
            "echo hello $NAME",
            restartPolicy="Never",
            container={"env": [{"name": "NAME", "value": "you"}]},
        ),
    )
    done = await cluster.until_phase("p", "Succeeded")
    assert await cluster.logs("p") == "hello you\n"
    status = done["status"]
    assert status["podIP"].startswith("127.")
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    conditions = {each["type"]: (each["status"], each.get("reason")) for each in status["conditions"]}
    assert conditions["Ready"] == ("False", "PodCompleted")
    assert conditions["PodScheduled"] == ("True", None)
    reasons = await cluster.until_true(lambda: cluster.events("p"), lambda seen: len(seen) >= 4)
    assert {reason for reason, _ in reasons} >= {"Scheduled", "Pulled", "Created", "Started"}


async def test_a_crashing_container_comes_back_with_a_growing_delay(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("p", "sh", "-c", "echo run; exit 1"))
    waiting = await cluster.until(
        kinds.PODS,
        "p",
        lambda p: (
            (p["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {}).get("reason")
            == "CrashLoopBackOff"
        ),
    )
    (status,) = waiting["status"]["containerStatuses"]
    assert "restarting failed container=c pod=p_default" in status["state"]["waiting"]["message"]
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert waiting["status"]["phase"] == "Running"
    await cluster.until(kinds.PODS, "p", lambda p: p["status"]["containerStatuses"][0]["restartCount"] >= 3)
    assert await cluster.logs("p", previous=True) == "run\n"


async def test_init_containers_and_sidecars_run_in_their_order(cluster: RunningCluster) -> None:
    body = pod("p", "sh", "-c", "echo main", restartPolicy="Never")
    body["spec"]["initContainers"] = [
        {
            "name": "first",
            "image": "busybox",
            "command": ["sh", "-c", "echo first > /shared/order"],
            "volumeMounts": [{"name": "v", "mountPath": "/shared"}],
        },
        {
            "name": "side",
            "image": "busybox",
            "restartPolicy": "Always",
            "command": ["sh", "-c", "cat /shared/order; sleep 1000"],
            "volumeMounts": [{"name": "v", "mountPath": "/shared"}],
        },
    ]
    body["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    await cluster.create(kinds.PODS, body)
    done = await cluster.until_phase("p", "Succeeded")
    assert await cluster.logs("p", "side") == "first\n"
    assert await cluster.logs("p", "c") == "main\n"
    init, side = done["status"]["initContainerStatuses"]
    assert init["ready"]
    assert side["state"]["terminated"]["exitCode"] == 143


async def test_a_start_that_fails_says_why_and_is_tried_again(cluster: RunningCluster) -> None:
    await cluster.create(
        kinds.PODS, pod("p", "env", restartPolicy="Never", container={"envFrom": [{"configMapRef": {"name": "late"}}]})
    )
    waiting = await cluster.until(
        kinds.PODS,
        "p",
        lambda p: (
            (p["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {}).get("reason")
            == "CreateContainerConfigError"
        ),
    )
    assert waiting["status"]["containerStatuses"][0]["state"]["waiting"]["message"] == 'configmap "late" not found'
    await cluster.create(kinds.CONFIG_MAPS, {"metadata": {"name": "late"}, "data": {"KEY": "there"}})
    await cluster.until_phase("p", "Succeeded")
    assert "KEY=there" in await cluster.logs("p")


async def test_an_image_that_cannot_be_pulled(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("p", image="registry.invalid/none:1"))
    await cluster.until(
        kinds.PODS,
        "p",
        lambda p: (
            (p["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {}).get("reason")
            == "ImagePullBackOff"
        ),
    )
    with pytest.raises(errors.BadRequest, match="is waiting to start"):
        await cluster.logs("p")


async def test_a_config_map_volume_follows_its_object(cluster: RunningCluster) -> None:
    await cluster.create(kinds.CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"k": "old"}})
    body = pod(
        "p",
        "sh",
        "-c",
        "while true; do cat /m/k; echo; sleep 0.05; done",
        container={"volumeMounts": [{"name": "m", "mountPath": "/m"}]},
    )
    body["spec"]["volumes"] = [{"name": "m", "configMap": {"name": "m"}}]
    await cluster.create(kinds.PODS, body)
    await cluster.until_log("p", "old")
    await cluster.patch(kinds.CONFIG_MAPS, "m", {"data": {"k": "new"}})
    await cluster.until_log("p", "new")


async def test_deletion_is_graceful_and_leaves_nothing(cluster: RunningCluster) -> None:
    made = await cluster.create(
        kinds.PODS,
        pod("p", "sh", "-c", "trap 'echo bye; sleep 0.3; exit 0' TERM; sleep 1000", terminationGracePeriodSeconds=5),
    )
    await cluster.until_phase("p", "Running")
    uid = made["metadata"]["uid"]
    root = node_of(cluster).root
    cgroup = root / "sys/fs/cgroup/kubepods" / f"pod{uid}"
    assert len(list(cgroup.glob("*/cgroup.procs"))) == 1
    await asyncio.sleep(0.1)
    await cluster.delete(kinds.PODS, "p")
    assert "deletionTimestamp" in (await cluster.get(kinds.PODS, "p"))["metadata"]
    await cluster.until_gone(kinds.PODS, "p")
    assert not cgroup.exists()
    await cluster.until_true(lambda: _exists(node_of(cluster).host.pod_folder(uid)), lambda there: not there)
    assert not list((root / "var/log/pods").iterdir())


async def test_a_pod_that_is_deleted_before_it_is_admitted_has_a_terminal_phase(cluster: RunningCluster) -> None:
    """Jobs wait for it: they keep their pods by a finalizer until then."""
    held = pod("p", "sleep", "1000", nodeName="node-1")
    held["metadata"]["finalizers"] = ["example.com/tracking"]
    async with node_of(cluster).host.admitting:
        await cluster.create(kinds.PODS, held)
        await cluster.delete(kinds.PODS, "p")
        await asyncio.sleep(0.2)  # the kubelet knows that it is to end
    done = await cluster.until_phase("p", "Failed")
    assert not any(each.get("state", {}).get("running") for each in done["status"]["containerStatuses"])
    await cluster.patch(kinds.PODS, "p", {"metadata": {"finalizers": None}})
    await cluster.until_gone(kinds.PODS, "p")


async def _exists(path: Path) -> bool:
    return path.exists()  # noqa: ASYNC240  a look at a temporary folder


async def test_a_container_that_ignores_sigterm_is_killed_after_its_grace(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("p", "sh", "-c", "trap '' TERM; sleep 1000", terminationGracePeriodSeconds=1))
    await cluster.until_phase("p", "Running")
    await asyncio.sleep(0.05)
    begin = asyncio.get_running_loop().time()
    await cluster.delete(kinds.PODS, "p")
    await cluster.until_gone(kinds.PODS, "p")
    assert 0.9 < asyncio.get_running_loop().time() - begin < 5


async def test_s06_a_force_deleted_container_outlives_its_object_and_its_cgroup_shows_it(
    cluster: RunningCluster,
) -> None:
    made = await cluster.create(
        kinds.PODS, pod("p", "sh", "-c", "trap '' TERM; sleep 1000", terminationGracePeriodSeconds=2)
    )
    await cluster.until_phase("p", "Running")
    await asyncio.sleep(0.05)
    await cluster.delete(kinds.PODS, "p", grace=0)
    await cluster.until_gone(kinds.PODS, "p")
    cgroup = node_of(cluster).root / "sys/fs/cgroup/kubepods" / f"pod{made['metadata']['uid']}"
    await asyncio.sleep(0.3)
    assert list(cgroup.glob("*/cgroup.procs")), "it still runs"
    await cluster.until_true(lambda: _exists(cgroup), lambda there: not there)


async def test_a_pod_that_does_not_fit_is_rejected_by_the_kubelet(cluster: RunningCluster) -> None:
    body = pod("p", "sleep", "100", nodeName="node-1", container={"resources": {"requests": {"cpu": "1000"}}})
    await cluster.create(kinds.PODS, body)
    failed = await cluster.until_phase("p", "Failed")
    assert failed["status"]["reason"] == "OutOfcpu"
    assert failed["status"]["message"].startswith("Pod was rejected: Node didn't have enough resource: cpu")
    await cluster.delete(kinds.PODS, "p")
    await cluster.until_gone(kinds.PODS, "p")


async def test_a_running_container_is_resized_in_place(cluster: RunningCluster) -> None:
    requests = {"resources": {"requests": {"cpu": "100m"}}}
    await cluster.create(kinds.PODS, pod("p", "sleep", "1000", container=requests))
    await cluster.until_phase("p", "Running")
    more = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}]}}
    await cluster.client.patch(
        kinds.PODS, "p", more, namespace="default", how=PatchType.strategic, subresource="resize"
    )
    resized = await cluster.until(
        kinds.PODS,
        "p",
        lambda found: found["status"]["containerStatuses"][0]["resources"] == {"requests": {"cpu": "200m"}},
    )
    assert resized["status"]["containerStatuses"][0]["allocatedResources"] == {"cpu": "200m"}
    assert resized["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_a_deadline_fails_the_pod(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("p", "sleep", "100", activeDeadlineSeconds=1))
    failed = await cluster.until_phase("p", "Failed")
    assert failed["status"]["reason"] == "DeadlineExceeded"


async def test_following_a_log_ends_with_the_container(cluster: RunningCluster) -> None:
    await cluster.create(
        kinds.PODS, pod("p", "sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.1; done", restartPolicy="Never")
    )
    await cluster.until_log("p", "1")
    async with asyncio.timeout(10):
        assert await cluster.logs("p", follow=True) == "1\n2\n3\n"


class WithDevices:
    """A node with a toy plugin for slices."""

    def __init__(self, cluster: RunningCluster, plugin: ToyPlugin) -> None:
        self.cluster = cluster
        self.plugin = plugin

    async def pod(self, name: str, *command: str, **spec: Any) -> Json:
        container = {"resources": {"limits": {RESOURCE: "1"}}}
        return await self.cluster.create(kinds.PODS, pod(name, *command, container=container, **spec))

    def write_cdi(self) -> None:
        """What the agent of a real node writes in PreStartContainer."""
        entries = [
            {"name": name, "containerEdits": {"env": [f"{names.VISIBLE_DEVICES}=MIG-{name}"]}}
            for name in self.plugin.devices
        ]
        spec = {"cdiVersion": "0.6.0", "kind": "apportion.io/c1g.5gb", "devices": entries}
        (node_of(self.cluster).root / "var/run/cdi/x.json").write_text(json.dumps(spec))


@pytest.fixture
async def devices(cluster: RunningCluster) -> Any:
    plugin = ToyPlugin(node_of(cluster).root / "var/lib/kubelet/device-plugins", RESOURCE, ["a", "b"])
    await plugin.start()
    await cluster.until(kinds.NODES, "node-1", lambda n: n["status"]["allocatable"].get(RESOURCE) == "2")
    yield WithDevices(cluster, plugin)
    await plugin.stop()


async def test_m03_devices_show_in_the_node_at_once_and_go_unhealthy_with_their_plugin(devices: WithDevices) -> None:
    cluster = devices.cluster
    await devices.plugin.stop()
    node = await cluster.until(kinds.NODES, "node-1", lambda n: n["status"]["allocatable"][RESOURCE] == "0")
    assert node["status"]["capacity"][RESOURCE] == "2"


async def test_s07_cdi_env_written_in_pre_start_reaches_the_container(devices: WithDevices) -> None:
    cluster, plugin = devices.cluster, devices.plugin
    devices.write_cdi()
    await devices.pod("p", "env", restartPolicy="Never")
    await cluster.until_phase("p", "Succeeded")
    (ids,) = plugin.called("PreStartContainer")
    assert f"{names.VISIBLE_DEVICES}=MIG-{ids[0]}" in await cluster.logs("p")
    assert f"TOY={ids[0]}" in await cluster.logs("p")


async def test_an_error_of_allocate_ends_the_pod(devices: WithDevices) -> None:
    devices.plugin.fail_allocate = "no such slice"
    await devices.pod("p", "sleep", "100")
    failed = await devices.cluster.until_phase("p", "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"
    text = "Allocate failed due to rpc error: code = Unknown desc = no such slice, which is unexpected"
    assert failed["status"]["message"] == f"Pod was rejected: {text}"
    events = await devices.cluster.until_true(lambda: devices.cluster.events("p"), lambda seen: len(seen) >= 2)
    assert ("UnexpectedAdmissionError", text) in events


async def test_an_error_of_pre_start_is_shown_and_tried_again(devices: WithDevices) -> None:
    cluster = devices.cluster
    devices.plugin.fail_pre_start = "slice not ready"
    devices.write_cdi()
    await devices.pod("p", "sleep", "100")
    waiting = await cluster.until(
        kinds.PODS,
        "p",
        lambda p: (
            (p["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {}).get("reason")
            == "CreateContainerConfigError"
        ),
    )
    message = waiting["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
    assert message == (
        "device plugin PreStartContainer rpc failed with err: rpc error: code = Unavailable desc = slice not ready"
    )
    devices.plugin.fail_pre_start = ""
    await cluster.until_phase("p", "Running")
    assert len(devices.plugin.called("Allocate")) == 1
    assert len(devices.plugin.called("PreStartContainer")) >= 2


async def test_a_kubelet_restart_keeps_containers_and_their_devices(devices: WithDevices) -> None:
    cluster = devices.cluster
    devices.write_cdi()
    await devices.pod("p", "sleep", "100")
    before = await cluster.until_phase("p", "Running")
    await node_of(cluster).restart()
    await cluster.until(kinds.NODES, "node-1", lambda n: n["status"]["allocatable"][RESOURCE] == "0")
    assert not devices.plugin.socket.exists()
    await devices.plugin.stop()
    await devices.plugin.start()
    await cluster.until(kinds.NODES, "node-1", lambda n: n["status"]["allocatable"][RESOURCE] == "2")
    after = await cluster.get(kinds.PODS, "p")
    assert (
        after["status"]["containerStatuses"][0]["containerID"]
        == before["status"]["containerStatuses"][0]["containerID"]
    )
    await devices.pod("q", "sleep", "100")
    await cluster.until_phase("q", "Running")
    held = {ids for _, ids in devices.plugin.calls}
    assert held == {("a",), ("b",)}


async def test_readiness_gates_hold_a_pod_back(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("p", "sleep", "100", readinessGates=[{"conditionType": "example.com/ok"}]))
    running = await cluster.until_phase("p", "Running")
    assert _condition(running, "Ready") == "False"
    patch = {"status": {"conditions": [{"type": "example.com/ok", "status": "True"}]}}
    await cluster.client.patch(
        kinds.PODS, "p", patch, namespace="default", how=PatchType.strategic, subresource="status"
    )
    ready = await cluster.until(kinds.PODS, "p", lambda p: _condition(p, "Ready") == "True")
    assert not any(each.get("reason") or each.get("message") for each in ready["status"]["conditions"])


def _condition(found: Json, kind: str) -> str | None:
    return next((each["status"] for each in found["status"].get("conditions", []) if each["type"] == kind), None)


async def test_exec_probes_look_into_a_simulated_container(cluster: RunningCluster) -> None:
    probe = {"exec": {"command": ["cat", "/tmp/ok"]}, "periodSeconds": 1}
    script = "sleep 0.4; touch /tmp/ok; sleep 1000"
    await cluster.create(kinds.PODS, pod("p", "sh", "-c", script, container={"readinessProbe": probe}))
    running = await cluster.until_phase("p", "Running")
    assert _condition(running, "Ready") == "False"
    await cluster.until(kinds.PODS, "p", lambda p: _condition(p, "Ready") == "True")


async def test_a_failing_liveness_probe_restarts_the_container(cluster: RunningCluster) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    await cluster.create(kinds.PODS, pod("p", "sleep", "1000", container={"livenessProbe": probe}))
    await cluster.until(kinds.PODS, "p", lambda p: _restarts(p) >= 1)
    events = await cluster.until_true(
        lambda: cluster.events("p"), lambda seen: any(reason == "Unhealthy" for reason, _ in seen)
    )
    assert ("Killing", "Container c failed liveness probe, will be restarted") in events


def _restarts(found: Json) -> int:
    statuses = found["status"].get("containerStatuses") or [{}]
    return int(statuses[0].get("restartCount", 0))


async def test_a_pre_stop_hook_runs_within_the_grace_period(cluster: RunningCluster) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo stopping > /shared/note"]}}}
    container = {"lifecycle": hook, "volumeMounts": [{"name": "v", "mountPath": "/shared"}]}
    volume = {"name": "v", "hostPath": {"path": "/var/shared"}}
    await cluster.create(kinds.PODS, pod("p", "sleep", "1000", container=container, volumes=[volume]))
    await cluster.until_phase("p", "Running")
    await cluster.delete(kinds.PODS, "p")
    await cluster.until_gone(kinds.PODS, "p")
    assert (node_of(cluster).root / "var/shared/note").read_text() == "stopping\n"
