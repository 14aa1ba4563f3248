"""A pod's volumes as folders under its node's root.

ConfigMaps, Secrets, tokens and pod fields are written beside and swapped in with one rename of a link, as a real
kubelet does: a reader sees the old set of files or the new one, never a mixture.
"""

from __future__ import annotations

import base64
import itertools
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketkube.kubelet import confined_paths
from pocketkube.kubelet.container_files import Mount, absolute
from pocketkube.kubelet.containers import downward_api, environment
from pocketkube.kubelet.containers.environment import ConfigError, Settings

Json = dict[str, Any]
Payload = dict[str, tuple[bytes, int]]  # path in the volume -> content and mode
Token = Callable[[Mapping[str, Any]], Awaitable[str]]  # a serviceAccountToken source -> a token

DEFAULT_MODE = 0o644
_RENDERED = ("configMap", "secret", "downwardAPI", "projected")
_generation = itertools.count(1)


class MountError(Exception):
    """A volume that cannot be set up yet."""


@dataclass
class PodVolumes:
    """The volumes of one pod. `shared` holds what outlives pods (persistent volumes)."""

    pod: Mapping[str, Any]
    folder: Path
    node_root: Path
    shared: Path
    settings: Settings
    allocatable: Mapping[str, Any]
    token: Token

    async def prepare(self) -> None:
        """Set up every volume that a container mounts; called again it writes what has changed."""
        spec = self.pod["spec"]
        mounted = {
            mount["name"]
            for container in (*(spec.get("initContainers") or ()), *spec["containers"])
            for mount in container.get("volumeMounts") or ()
        }
        for volume in spec.get("volumes") or []:
            if volume["name"] not in mounted:
                continue
            try:
                await self._prepare(volume)
            except (ConfigError, downward_api.FieldReferenceError) as error:
                raise MountError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from None

    def uses(self, kind: str, name: str) -> bool:
        """Whether a volume shows this ConfigMap or Secret."""
        key = {"ConfigMap": ("configMap", "name"), "Secret": ("secret", "secretName")}[kind]
        for volume in self.pod["spec"].get("volumes") or []:
            if (volume.get(key[0]) or {}).get(key[1]) == name:
                return True
            for source in (volume.get("projected") or {}).get("sources") or []:
                if (source.get(key[0]) or {}).get("name") == name:
                    return True
        return False

    def mounts(self, container: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Mount]:
        """What is mounted at each path of a container."""
        found: dict[str, Mount] = {}
        for mount in container.get("volumeMounts") or []:
            volume = self.path(mount["name"])
            inner = mount.get("subPath") or environment.expand_strictly(mount.get("subPathExpr") or "", env)
            if inner:
                _check_sub_path(volume, inner, mount["name"], container["name"])
            found[absolute(mount["mountPath"])] = Mount(volume, inner)
        return found

    def path(self, name: str) -> Path:
        for volume in self.pod["spec"].get("volumes") or []:
            if volume["name"] != name:
                continue
            if "hostPath" in volume:
                return confined_paths.resolve(self.node_root, str(volume["hostPath"]["path"]))
            if "persistentVolumeClaim" in volume:
                namespace, claim = self.pod["metadata"]["namespace"], volume["persistentVolumeClaim"]["claimName"]
                return confined_paths.resolve(self.shared / str(namespace), str(claim))
        return confined_paths.resolve(self.folder / "volumes", name)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _prepare(self, volume: Mapping[str, Any]) -> None:
        folder = self.path(volume["name"])
        if "hostPath" in volume:
            _prepare_host_path(folder, volume["hostPath"])
            return
        folder.mkdir(parents=True, exist_ok=True)
        if any(kind in volume for kind in _RENDERED):
            write_atomically(folder, await self._payload(volume))

    async def _payload(self, volume: Mapping[str, Any]) -> Payload:
        if "projected" not in volume:
            return self._source(volume, _mode(next(volume[kind] for kind in _RENDERED if kind in volume)))
        payload: Payload = {}
        mode = _mode(volume["projected"])
        for source in volume["projected"].get("sources") or []:
            if "serviceAccountToken" in source:
                wanted = source["serviceAccountToken"]
                payload[wanted["path"]] = ((await self.token(wanted)).encode(), 0o600)
            else:
                payload |= self._source(source, mode)
        return payload

    def _source(self, source: Mapping[str, Any], mode: int) -> Payload:
        if "downwardAPI" in source:
            return {
                item["path"]: (self._field(item), _mode(item, mode))
                for item in source["downwardAPI"].get("items") or []
            }
        if "configMap" in source:
            return self._settings("configmap", source["configMap"], mode)
        return self._settings("secret", source["secret"], mode)

    def _field(self, item: Mapping[str, Any]) -> bytes:
        if "fieldRef" in item:
            return downward_api.field_value(self.pod, item["fieldRef"]["fieldPath"]).encode()
        return downward_api.resource_value(self.pod, item["resourceFieldRef"], self.allocatable, container="").encode()

    def _settings(self, title: str, source: Mapping[str, Any], mode: int) -> Payload:
        name, namespace = source.get("name") or source.get("secretName", ""), self.pod["metadata"]["namespace"]
        read = self.settings.config_map if title == "configmap" else self.settings.secret
        found = read(namespace, name)
        if found is None:
            if source.get("optional"):
                return {}
            raise ConfigError(f'{title} "{name}" not found')
        data = _contents(found, encoded=title == "secret")
        items = source.get("items")
        if not items:
            return {key: (value, mode) for key, value in data.items()}
        missing = [item["key"] for item in items if item["key"] not in data]
        if missing and not source.get("optional"):
            raise ConfigError(f"references non-existent {title} key: {missing[0]}")
        return {item["path"]: (data[item["key"]], _mode(item, mode)) for item in items if item["key"] in data}


def write_atomically(folder: Path, payload: Payload) -> None:
    """Put files into a folder all at once; nothing happens if they are there already."""
    for name in payload:
        _check_payload_path(name)
    current = folder / "..data"
    if _same(current, payload):
        return
    target = folder / f"..{next(_generation)}"
    for name, (content, mode) in payload.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # nobody else reads a token or a secret before it has its own mode
        path.write_bytes(content)
        path.chmod(mode)
    target.mkdir(exist_ok=True)
    before = current.resolve() if current.is_symlink() else None
    beside = folder / "..data_tmp"
    beside.unlink(missing_ok=True)
    beside.symlink_to(target.name)
    os.replace(beside, current)  # noqa: PTH105
    _link_entries(folder, {name.split("/")[0] for name in payload})
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)


def _check_sub_path(volume: Path, inner: str, name: str, container: str) -> None:
    """Refuse what a kubelet refuses, and make a folder that is missing."""
    if inner.startswith("/"):
        raise ConfigError(f"error SubPath `{inner}` must not be an absolute path")
    if confined_paths.has_backstep(inner):
        raise ConfigError(f"unable to provision SubPath `{inner}`: must not contain '..'")
    if confined_paths.leaves(volume, inner):
        raise ConfigError(f'failed to prepare subPath for volumeMount "{name}" of container "{container}"')
    path = confined_paths.resolve(volume, inner)
    if not path.exists():
        path.mkdir(parents=True)


def _check_payload_path(path: str) -> None:
    if path.startswith("/"):
        raise ConfigError(f"invalid path: must be relative path: {path}")
    if confined_paths.has_backstep(path):
        raise ConfigError(f"invalid path: must not contain '..': {path}")
    if path.startswith(".."):
        raise ConfigError(f"invalid path: must not start with '..': {path}")


def _link_entries(folder: Path, entries: Iterable[str]) -> None:
    wanted = set(entries)
    for entry in wanted:
        link = folder / entry
        if not link.is_symlink():
            link.symlink_to(Path("..data") / entry)
    for link in folder.iterdir():
        if link.is_symlink() and not link.name.startswith("..") and link.name not in wanted:
            link.unlink()


def _same(folder: Path, payload: Payload) -> bool:
    if not folder.exists():
        return False
    real = folder.resolve()
    there = {str(path.relative_to(real)) for path in real.rglob("*") if path.is_file()}
    return there == set(payload) and all(
        (folder / name).read_bytes() == content for name, (content, _) in payload.items()
    )


def _prepare_host_path(path: Path, source: Mapping[str, Any]) -> None:
    """A missing folder is made, as container runtimes do; a kind that is demanded must be there."""
    kind = source.get("type") or ""
    if kind in ("Directory", "File", "Socket", "CharDevice", "BlockDevice") and not path.exists():
        raise ConfigError(f"hostPath type check failed: {source['path']} is not a {kind.lower()}")
    if kind == "FileOrCreate":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    elif not path.exists():
        path.mkdir(parents=True)


def _contents(found: Json, *, encoded: bool) -> dict[str, bytes]:
    binary = found.get("data") if encoded else found.get("binaryData")
    data = {key: base64.b64decode(value) for key, value in (binary or {}).items()}
    if not encoded:
        data |= {key: value.encode() for key, value in (found.get("data") or {}).items()}
    return data


def _mode(source: Mapping[str, Any], default: int = DEFAULT_MODE) -> int:
    mode = source.get("mode", source.get("defaultMode"))
    return default if mode is None else int(mode)
