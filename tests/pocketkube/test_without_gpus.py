"""pocketkube runs in a process in which no module about GPUs is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from apportion.apis import kinds
from apportion.cluster.client import Client
from tests.environments import binaries, fixtures

PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from pocketkube.cluster import EmbeddedCluster
from pocketkube.node_pools import Pool

async def main():
    async with EmbeddedCluster(Pool(name="node").plans(), kubeconfig=Path(sys.argv[1])):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps(sorted(sys.modules)))

asyncio.run(main())
"""
# Everything of apportion that may be loaded with pocketkube: a new module is added here only if it knows no GPU.
GENERAL = {
    "apportion",
    "apportion.apis",
    "apportion.apis.effective_resources",
    "apportion.apis.errors",
    "apportion.apis.identities",
    "apportion.apis.kinds",
    "apportion.apis.kubelet",
    "apportion.apis.kubelet.checkpoint",
    "apportion.apis.kubelet.deviceplugin_pb2",
    "apportion.apis.kubelet.deviceplugin_pb2_grpc",
    "apportion.apis.kubelet.podresources_pb2",
    "apportion.apis.kubelet.podresources_pb2_grpc",
    "apportion.apis.meta",
    "apportion.apis.noderules",
    "apportion.apis.nodes",
    "apportion.apis.pods",
    "apportion.apis.quantity",
    "apportion.apis.selectors",
    "apportion.apis.taints",
    "apportion.cluster",
    "apportion.cluster.access",
    "apportion.cluster.certificates",
    "apportion.cluster.client",
    "apportion.cluster.clock",
    "apportion.cluster.credentials",
    "apportion.cluster.errors",
    "apportion.cluster.events",
    "apportion.cluster.informer",
    "apportion.cluster.input_files",
    "apportion.cluster.kubeconfig_schema",
    "apportion.cluster.log_levels",
    "apportion.cluster.pemfile",
    "apportion.cluster.service_account",
    "apportion.cluster.transport",
    "apportion.cluster.watching",
    "apportion.cluster.wire",
    "apportion.cluster.workqueue",
}
NOT_NEEDED = {"numpy", "pynvml"}


class Process:
    """A cluster in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.kubeconfig)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def stop(self) -> set[str]:
        """The modules that it had loaded at its end."""
        said, _ = self._process.communicate("\n", timeout=60)
        return set(json.loads(said))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path)
    yield made
    made.kill()


def without_gpus(modules: set[str]) -> None:
    assert {name for name in modules if name.split(".")[0] == "apportion"} <= GENERAL
    assert not modules & NOT_NEEDED
    assert "pocketkube.kubelet.kubelet" in modules


async def test_it_runs_a_pod_and_answers_a_client(process: Process) -> None:
    async with Client.from_kubeconfig(process.kubeconfig) as client:
        container = {"name": "c", "image": "busybox", "command": ["echo", "hello"]}
        body = {"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never", "containers": [container]}}
        await client.create(kinds.PODS, body, namespace="default")
        async for event in client.watch(kinds.PODS, namespace="default"):
            if event.object["status"].get("phase") == "Succeeded":
                break
        assert b"".join([part async for part in client.logs("default", "p")]) == b"hello\n"
    without_gpus(process.stop())


@pytest.mark.kubectl
def test_it_answers_kubectl(process: Process) -> None:
    fixtures.require(("kubectl",))

    def kubectl(*words: str) -> str:
        command = [str(binaries.path("kubectl")), "--kubeconfig", str(process.kubeconfig), *words]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2") == "deployment.apps/web created\n"
    kubectl("rollout", "status", "deployment/web", "--timeout=50s")
    assert len(kubectl("get", "pods", "-o", "name").splitlines()) == 2
    assert kubectl("get", "nodes", "-o", "name") == "node/node-1\n"
    assert "phase" in kubectl("explain", "pod.status")
    without_gpus(process.stop())
