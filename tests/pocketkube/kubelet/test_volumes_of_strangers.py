"""Paths that a pod names lead to its own files, never to the machine's (T01)."""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apportion.apis import kinds
from pocketkube.kubelet import confined_paths
from pocketkube.kubelet.container_files import ContainerFiles, Mount
from pocketkube.kubelet.containers import cdi, launching
from pocketkube.kubelet.containers.environment import ConfigError
from pocketkube.kubelet.kubelet import Kubelet
from pocketkube.kubelet.pods.volumes import write_atomically
from tests.pocketkube.cluster import RunningCluster, embedded, pod

UP = "../" * 12
MARK = "a file of the machine"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with embedded(tmp_path) as made:
        yield made


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file of the machine that no pod may read or write."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text(MARK)
    return folder / "file"


def node_of(cluster: RunningCluster) -> Kubelet:
    return next(iter(cluster.pocketkube.kubelets.values()))


async def waiting(cluster: RunningCluster, name: str) -> tuple[str, str]:
    """Why a container does not start."""

    def state(body: dict[str, Any]) -> dict[str, Any]:
        (found,) = body["status"].get("containerStatuses") or [{}]
        return (found.get("state") or {}).get("waiting") or {}

    found = state(await cluster.until(kinds.PODS, name, lambda body: "message" in state(body)))
    return found["reason"], found["message"]


def mounting(name: str, script: str, value: str, **mount: Any) -> dict[str, Any]:
    container = {
        "env": [{"name": "X", "value": value}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}],
    }
    return pod(name, "sh", "-c", script, container=container, volumes=[{"name": "v", "emptyDir": {}}])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("../../..", "unable to provision SubPath `../../..`: must not contain '..'"),
        ("a/../../b", "unable to provision SubPath `a/../../b`: must not contain '..'"),
        ("/etc", "error SubPath `/etc` must not be an absolute path"),
        ("", "missing value for X"),
    ],
)
async def test_t01_an_expanded_sub_path_stays_in_its_volume(cluster: RunningCluster, value: str, message: str) -> None:
    await cluster.create(kinds.PODS, mounting("p", "cat /v/passwd", value, subPathExpr="$(X)"))
    assert await waiting(cluster, "p") == ("CreateContainerConfigError", message)


async def test_t01_a_sub_path_behind_a_link_stays_in_its_volume(cluster: RunningCluster, target: Path) -> None:
    folder = node_of(cluster).host.shared / "default/claim"
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(target.parent)
    mounts = [{"name": "v", "mountPath": "/v", "subPath": "link"}]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]
    body = pod("p", "cat", "/v/file", container={"volumeMounts": mounts}, volumes=volumes, nodeName="node-1")
    await cluster.create(kinds.PODS, body)
    message = 'failed to prepare subPath for volumeMount "v" of container "c"'
    assert await waiting(cluster, "p") == ("CreateContainerConfigError", message)


async def test_t01_claims_and_host_paths_lie_in_the_cluster(cluster: RunningCluster, target: Path) -> None:
    """The API server refuses `..` in host paths; a claim may have any name."""
    script = f"cat /claim/file; cat /host{target}; echo hostile > /claim/file; ls /host/etc; echo done"
    volumes = [
        {"name": "claim", "persistentVolumeClaim": {"claimName": f"{UP}{target.parent}"}},
        {"name": "host", "hostPath": {"path": "/"}},
    ]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("claim", "host")]
    body = pod("p", "sh", "-c", script, container={"volumeMounts": mounts}, volumes=volumes, nodeName="node-1")
    await cluster.create(kinds.PODS, body | {"spec": body["spec"] | {"restartPolicy": "Never"}})
    await cluster.until_phase("p", "Succeeded")
    log = await cluster.logs("p")
    assert log.endswith("cdi\ndone\n"), "the node has its own /etc"
    assert MARK not in log
    assert target.read_text() == MARK  # noqa: ASYNC240


async def test_t01_no_host_path_shows_the_files_of_other_pods(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("other"))
    await cluster.until_phase("other", "Running")
    node = node_of(cluster)
    tokens = [path for path in cluster.pocketkube.root.rglob("token") if not path.is_symlink()]
    assert tokens
    assert not any(path.is_relative_to(node.root) for path in tokens)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tokens)
    for folder in (cluster.pocketkube.root, node.host.pods, node.host.shared):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_t01_the_termination_message_is_a_file_of_the_container(cluster: RunningCluster, target: Path) -> None:
    container = {"terminationMessagePath": f"/{UP}{target}"}
    await cluster.create(kinds.PODS, pod("p", "true", container=container, restartPolicy="Never"))
    ended = await cluster.until_phase("p", "Succeeded")
    assert "message" not in ended["status"]["containerStatuses"][0]["state"]["terminated"]
    written = {"terminationMessagePath": "/v/said", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volumes = [{"name": "v", "emptyDir": {}}]
    script = "echo -n over > /v/said"
    await cluster.create(
        kinds.PODS, pod("q", "sh", "-c", script, container=written, volumes=volumes, restartPolicy="Never")
    )
    ended = await cluster.until_phase("q", "Succeeded")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "over"


async def test_t01_a_script_reads_and_writes_files_of_its_container_only(cluster: RunningCluster, target: Path) -> None:
    words = " ".join((f"/{UP}{target}", f"{UP}{target}", f"/v/{UP}{target}", str(target)))
    script = f"for f in {words}; do cat $f; echo hostile > $f; cat < $f; rm $f; mkdir $f; touch $f; done; echo done"
    await cluster.create(kinds.PODS, mounting("p", script, "", readOnly=False))
    log = await cluster.until_log("p", "done")
    assert MARK not in log
    assert target.read_text() == MARK  # noqa: ASYNC240


async def test_t01_cdi_mounts_lie_on_the_node(cluster: RunningCluster, target: Path) -> None:
    """Whoever can write a CDI file on the node chooses its host paths."""
    node = node_of(cluster)
    for number, path in enumerate((f"{UP}{target}", f"{node.root}/{UP}{target}", str(target))):
        mounts = [{"hostPath": path, "containerPath": "/x"}]
        device = {"name": "d", "containerEdits": {"mounts": mounts}}
        spec = {"cdiVersion": "0.6.0", "kind": f"vendor.example/c{number}", "devices": [device]}
        (node.root / f"etc/cdi/{number}.json").write_text(json.dumps(spec))
        ((found, _),) = cdi.resolve(node.root, [f"vendor.example/c{number}=d"]).mounts
        assert launching.on_node(node.root, found).path().is_relative_to(node.root)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "..x"])
def test_t01_files_of_a_volume_stay_in_it(path: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="invalid path: must"):
        write_atomically(tmp_path / "v", {path: (b"", 0o644)})
    assert list(tmp_path.iterdir()) == []


def test_t01_links_are_followed_inside_their_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside / "deep", outside):
        folder.mkdir(parents=True)
    (inside / "up").symlink_to("../out")
    (inside / "absolute").symlink_to(outside)
    (inside / "loop").symlink_to("loop")
    (inside / "deep/good").symlink_to("../other")
    assert confined_paths.resolve(inside, "up/x") == inside / "out/x"
    assert confined_paths.resolve(inside, "absolute/x") == inside / str(outside).lstrip("/") / "x"
    assert confined_paths.resolve(inside, "deep/good/../..//../x") == inside / "x"
    assert confined_paths.leaves(inside, "up")
    assert not confined_paths.leaves(inside, "deep/good")
    with pytest.raises(OSError, match="symbolic links"):
        confined_paths.resolve(inside, "loop")
    files = ContainerFiles(tmp_path / "root", {"/v": Mount(inside)})
    assert files.path("/v/up/x") == inside / "out/x"
