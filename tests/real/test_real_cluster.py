"""The real cluster itself: it runs pods, does not change the machine, and leaves nothing behind."""

from __future__ import annotations

import subprocess

import pytest

from tests.environments import cgroups, images
from tests.environments.control_plane import ControlPlane
from tests.environments.node import RealNode
from tests.environments.waiting import until

pytestmark = pytest.mark.real


def test_a_pod_runs_and_answers_logs_and_exec(real_node: RealNode, namespace: str) -> None:
    control_plane = real_node.plane
    script = "echo from the container; exec sleep 1000"
    control_plane.kubectl(
        "run", "-n", namespace, "p", f"--image={images.WORKLOAD}", "--restart=Never", "--", "sh", "-c", script
    )
    control_plane.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/p", "--timeout=30s")

    assert control_plane.kubectl("logs", "-n", namespace, "p") == "from the container\n"
    assert "sleep 1000" in control_plane.kubectl("exec", "-n", namespace, "p", "--", "ps")
    pod = control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods/p")
    assert pod["spec"]["nodeName"] == real_node.name
    assert real_node.processes_of(pod["metadata"]["uid"])

    control_plane.kubectl("delete", "-n", namespace, "pod/p", "--grace-period=1")
    until(lambda: not real_node.processes_of(pod["metadata"]["uid"]), "the pod's processes end")


def test_a_pod_reaches_the_api_server_at_its_service_address(real_node: RealNode, namespace: str) -> None:
    control_plane = real_node.plane
    ask = 'wget -q -O - --no-check-certificate "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/version"'
    control_plane.kubectl(
        "run", "-n", namespace, "p", f"--image={images.WORKLOAD}", "--restart=Never", "--", "sh", "-c", ask
    )
    control_plane.kubectl("wait", "-n", namespace, "--for=jsonpath={.status.phase}=Succeeded", "pod/p", "--timeout=30s")
    assert '"gitVersion": "v1.34.4"' in control_plane.kubectl("logs", "-n", namespace, "p")


def test_running_pods_outlive_a_killed_kubelet(real_node: RealNode, namespace: str) -> None:
    control_plane = real_node.plane
    control_plane.kubectl("run", "-n", namespace, "p", f"--image={images.WORKLOAD}")
    control_plane.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/p", "--timeout=30s")
    uid = control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods/p")["metadata"]["uid"]
    before = real_node.processes_of(uid)

    real_node.kubelet.kill()
    real_node.start_kubelet()
    real_node.await_ready()

    assert real_node.processes_of(uid) == before
    control_plane.kubectl("delete", "-n", namespace, "pod/p", "--now")


def test_a_second_node_stands_beside_the_first_and_leaves_nothing(real_node: RealNode, namespace: str) -> None:
    plane = real_node.plane
    second = RealNode(plane)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeName": second.name, "containers": [{"name": "c", "image": images.WORKLOAD}]},
    }
    made = plane.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    plane.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/p", "--timeout=30s")
    running = second.processes_of(made["metadata"]["uid"])
    assert running

    second.close()
    assert not [pid for pid in running if cgroups.started(pid)]
    assert not list(cgroups.MOUNT.glob(f"*/{second.cgroup}"))
    assert not plane.api.exists(f"/api/v1/nodes/{second.name}")
    real_node.await_ready()


def test_the_machine_s_own_network_is_left_alone(real_node: RealNode) -> None:
    addresses = subprocess.run(["ip", "-brief", "address"], capture_output=True, text=True, check=True).stdout
    assert "10.96.0.1" not in addresses
    assert real_node.address not in addresses


def test_one_kubeconfig_serves_inside_the_sandbox_too(control_plane: ControlPlane) -> None:
    inside = subprocess.run(
        [*control_plane.enter, "curl", "-sk", f"{_server(control_plane)}/readyz"],
        capture_output=True,
        text=True,
        check=True,
    )
    # Anonymous, so the API server may say no, but it is the API server that says so.
    assert inside.stdout == "ok" or "system:anonymous" in inside.stdout


def _server(plane: ControlPlane) -> str:
    return plane.kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
