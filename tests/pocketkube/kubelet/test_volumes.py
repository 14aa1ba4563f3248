"""Volumes as folders."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pocketkube.kubelet.pods.volumes import MountError, PodVolumes


class Stored:
    def __init__(self) -> None:
        self.maps: dict[str, dict[str, Any]] = {"m": {"data": {"a": "1", "b": "2"}}}

    def config_map(self, namespace: str, name: str) -> dict[str, Any] | None:
        return self.maps.get(name)

    def secret(self, namespace: str, name: str) -> dict[str, Any] | None:
        return {"data": {"key": base64.b64encode(b"s").decode()}} if name == "s" else None


async def token(source: Mapping[str, Any]) -> str:
    return f"token for {source.get('audience', 'api')}"


def volumes(tmp_path: Path, *entries: dict[str, Any], stored: Stored | None = None) -> PodVolumes:
    pod = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"x": "y"}},
        "spec": {
            "volumes": list(entries),
            "containers": [{"volumeMounts": [{"name": each["name"], "mountPath": "/x"} for each in entries]}],
        },
    }
    return PodVolumes(pod, tmp_path / "pod", tmp_path / "node", tmp_path / "shared", stored or Stored(), {}, token)


async def test_settings_tokens_and_fields_become_files(tmp_path: Path) -> None:
    projected = {
        "sources": [
            {"serviceAccountToken": {"path": "token"}},
            {"configMap": {"name": "m", "items": [{"key": "a", "path": "deep/ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]
    }
    made = volumes(
        tmp_path,
        {"name": "all", "projected": projected},
        {"name": "m", "configMap": {"name": "m", "defaultMode": 0o400}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "empty", "emptyDir": {}},
    )
    await made.prepare()
    folder = made.path("all")
    assert (folder / "token").read_text() == "token for api"
    assert (folder / "deep/ca.crt").read_text() == "1"
    assert (folder / "namespace").read_text() == "n"
    assert {path.name for path in made.path("m").iterdir() if not path.name.startswith("..")} == {"a", "b"}
    assert (made.path("m") / "a").stat().st_mode & 0o777 == 0o400
    assert (made.path("s") / "key").read_text() == "s"
    assert made.path("empty").is_dir()


async def test_a_changed_config_map_is_swapped_in_as_a_whole(tmp_path: Path) -> None:
    stored = Stored()
    made = volumes(tmp_path, {"name": "m", "configMap": {"name": "m"}}, stored=stored)
    await made.prepare()
    first = (made.path("m") / "..data").resolve()
    await made.prepare()
    assert (made.path("m") / "..data").resolve() == first, "nothing changed, nothing is written"
    stored.maps["m"] = {"data": {"a": "new"}}
    assert made.uses("ConfigMap", "m")
    assert not made.uses("Secret", "m")
    await made.prepare()
    assert (made.path("m") / "a").read_text() == "new"
    assert not (made.path("m") / "b").is_symlink()
    assert not first.exists()


async def test_what_is_missing_is_said_unless_it_is_optional(tmp_path: Path) -> None:
    with pytest.raises(MountError, match=r'MountVolume\.SetUp failed for volume "v" : configmap "none" not found'):
        await volumes(tmp_path, {"name": "v", "configMap": {"name": "none"}}).prepare()
    await volumes(tmp_path, {"name": "v", "configMap": {"name": "none", "optional": True}}).prepare()
    with pytest.raises(MountError, match="hostPath type check failed: /dev/gpu is not a directory"):
        await volumes(tmp_path, {"name": "v", "hostPath": {"path": "/dev/gpu", "type": "Directory"}}).prepare()


async def test_what_no_container_mounts_is_not_waited_for(tmp_path: Path) -> None:
    made = volumes(tmp_path, {"name": "v", "configMap": {"name": "none"}})
    made.pod["spec"]["containers"] = [{"name": "c"}]
    await made.prepare()


async def test_host_paths_lie_under_the_nodes_root_and_claims_outlive_the_pod(tmp_path: Path) -> None:
    made = volumes(
        tmp_path,
        {"name": "h", "hostPath": {"path": "/var/lib/x", "type": "DirectoryOrCreate"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
    )
    await made.prepare()
    (made.path("c") / "file").write_text("kept")
    container = {
        "name": "c",
        "volumeMounts": [{"name": "h", "mountPath": "/x/"}, {"name": "c", "mountPath": "/d", "subPath": "in"}],
    }
    mounts = made.mounts(container, {})
    found = {path: mount.path() for path, mount in mounts.items()}
    assert found == {"/x": tmp_path / "node/var/lib/x", "/d": made.path("c") / "in"}
    made.remove()
    assert (made.path("c") / "file").read_text() == "kept"
