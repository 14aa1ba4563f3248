"""Pods with the image of the product: who starts processes on the machine, and what those can do (T01)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.apis.installation import Installation
from apportion.emulation.cluster import topology
from apportion.emulation.cluster.gpu_cluster import gpu_cluster
from tests.pocketkube.cluster import QUICK, RunningCluster, pod, started

Json = dict[str, Any]
PLANES = Installation.namespace
TENANT = "default"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    made = gpu_cluster(topology.default(1), kubeconfig=tmp_path / "kubeconfig", kubelet=QUICK)
    async with started(made) as running:
        await running.create(kinds.NAMESPACES, {"metadata": {"name": PLANES}})
        running.namespace = PLANES
        await running.until(kinds.SERVICE_ACCOUNTS, "default", lambda _: True)
        yield running


def children(cluster: RunningCluster) -> list[Path]:
    """The child processes of this one, but for that of simulated programs."""
    found: list[Path] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and entry.name != str(cluster.pocketkube.sandbox.pid):
                found.append(entry)
    return found


def ours(name: str, *command: str, image: str = names.IMAGE, env: Json | None = None, **spec: Any) -> Json:
    """A pod whose volume has Python files that prove that they were run, made by a simulated container."""
    proof = f"open('/tmp/host-proof-{os.getpid()}', 'w')"
    script = f'for m in sitecustomize usercustomize apportion typer; do echo "{proof}" > /x/$m.py; done'
    mounts = [{"name": "x", "mountPath": "/x"}]
    variables = {
        "PYTHONPATH": "/x",
        "PYTHONSTARTUP": "/x/typer.py",
        "HOME": "/x",
        "LD_PRELOAD": "/x/a.so",
        **(env or {}),
    }
    container = {
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "volumeMounts": mounts,
        "workingDir": "/x",
    }
    first = {"name": "first", "image": "busybox", "command": ["sh", "-c", script], "volumeMounts": mounts}
    volumes = [{"name": "x", "emptyDir": {}}]
    return pod(name, *command, image=image, container=container, initContainers=[first], volumes=volumes, **spec)


@pytest.fixture
def proof() -> Path:
    path = Path(f"/tmp/host-proof-{os.getpid()}")
    path.unlink(missing_ok=True)
    return path


@pytest.mark.usefixtures("no_proof")
async def test_t01_the_image_is_simulated_outside_the_namespaces_of_the_planes(cluster: RunningCluster) -> None:
    before = children(cluster)
    cluster.namespace = TENANT
    for number, command in enumerate((("apportion", "down"), ("apportion", "scheduler"), ("sh", "-c", "echo hi"), ())):
        await cluster.create(kinds.PODS, ours(f"p-{number}", *command))
        await cluster.until_phase(f"p-{number}", "Running")
    assert await cluster.until_log("p-2", "hi") == "hi\n"
    assert children(cluster) == before


@pytest.mark.parametrize("image", ["evil.example/x/apportion", "apportion", "ghcr.io/apportion/apportion:latest"])
async def test_t01_an_image_with_a_similar_name_is_simulated(cluster: RunningCluster, image: str) -> None:
    before = children(cluster)
    await cluster.create(kinds.PODS, ours("p", "apportion", "scheduler", image=image))
    await cluster.until_phase("p", "Running")
    assert children(cluster) == before


@pytest.mark.parametrize("command", ["up", "down", "demo", "lab", "certs", "--help"])
async def test_t01_commands_for_people_are_not_run_in_a_cluster(cluster: RunningCluster, command: str) -> None:
    await cluster.create(kinds.PODS, ours("p", "apportion", command))

    def state(body: Json) -> Json:
        (found,) = body["status"].get("containerStatuses") or [{}]
        return (found.get("state") or {}).get("waiting") or {}

    found = state(await cluster.until(kinds.PODS, "p", lambda body: state(body).get("reason") == "RunContainerError"))
    assert f'command "{command}" of image {names.IMAGE} is not run in a cluster' in found["message"]


@pytest.mark.usefixtures("no_proof")
async def test_t01_a_plane_takes_no_code_and_no_files_from_the_machine(cluster: RunningCluster) -> None:
    """Also in the namespaces of the planes, whose users are administrators of the cluster."""
    log_level = {"APPORTION_LOG_LEVEL": "Normal", "KUBECONFIG": "/x/config", "APPORTION_SERVICE_ACCOUNT_DIR": "/x"}
    before = set(children(cluster))
    body = ours("p", "apportion", "node", "--node-name=node-1", "--state-dir=/state", env=log_level)
    await cluster.create(kinds.PODS, body)
    await cluster.until_true(lambda: _new(cluster, before), bool)
    (process,) = await _new(cluster, before)
    pods = next(iter(cluster.pocketkube.kubelets.values())).host.pods

    async def words() -> list[str]:
        return (process / "cmdline").read_bytes().decode().split("\0")

    await cluster.until_true(words, lambda found: "node" in found)
    options = dict(word.split("=", 1) for word in await words() if word.startswith("--") and "=" in word)
    folders = ("--kubelet-dir", "--cdi-dir", "--state-dir", "--cgroup-dir")
    assert all(Path(options[name]).is_relative_to(pods) for name in folders), options
    assert options["--listen"] == "127.0.0.1:9400"
    env = dict(each.split("=", 1) for each in (process / "environ").read_bytes().decode().split("\0") if each)
    assert not {"PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "KUBECONFIG"} & env.keys()
    assert Path(env["HOME"]).is_relative_to(pods)
    assert Path(env["APPORTION_SERVICE_ACCOUNT_DIR"]).is_relative_to(pods)
    assert (process / "cwd").resolve().is_relative_to(pods)
    await cluster.until_log("p", "\n")


async def _new(cluster: RunningCluster, before: set[Path]) -> list[Path]:
    return [entry for entry in children(cluster) if entry not in before]


async def test_r04_the_cluster_is_reached_on_this_machine_by_its_owner_only(cluster: RunningCluster) -> None:
    assert cluster.pocketkube.url.startswith("https://127.0.0.1:")
    assert stat.S_IMODE(cluster.pocketkube.kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE(cluster.pocketkube.root.stat().st_mode) == 0o700
