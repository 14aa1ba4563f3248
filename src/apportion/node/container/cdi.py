"""CDI files: how a container gets its environment from a device name that the kubelet passes on.

One file per device name, because two files that define one name make it unresolvable. The name is
made of the resource and the device ids alone, since the kubelet passes nothing else when it allocates;
so a file can pass from a pod that went to the next one that got its ids. It says whose it is, and is
removed only for that pod.

Comparing and removing happen without an await in between, so no other task can rewrite the file.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from apportion.apis import names
from apportion.apis.identities import PodUID
from apportion.node import atomic_files

VERSION = "0.6.0"  # the first one with annotations
PREFIX = "apportion-slice-"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owner:
    """The pod that a file belongs to, and those of its containers that resolve its name."""

    pod_uid: PodUID
    containers: frozenset[str]


def device_name(resource: str, ids: Iterable[str]) -> str:
    digest = hashlib.sha256("\n".join([resource, *sorted(ids)]).encode()).hexdigest()
    return f"s{digest[:24]}"


def qualified(name: str) -> str:
    return f"{names.CDI_VENDOR_CLASS}={name}"


class CdiFolder:
    def __init__(self, folder: Path, *, on_remove: Callable[[str], None] = lambda _name: None) -> None:
        self._folder = folder
        self._on_remove = on_remove
        self._owners: dict[str, Owner] = {}

    def load(self) -> None:
        """Read the folder again. Files that are not ours are not touched."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._owners = {}
        for path in self._folder.glob(f"{PREFIX}*.json"):
            owner = _owner(path)
            if owner is None:
                log.warning("%s is not a CDI file of this agent, despite its name: left unchanged", path)
            else:
                self._owners[path.stem.removeprefix(PREFIX)] = owner

    def write(
        self,
        name: str,
        owner: Owner,
        environment: Mapping[str, str],
        *,
        mounts: Sequence[tuple[str, str]] = (),
        devices: Sequence[str] = (),
    ) -> None:
        """`mounts` are files of the host with their paths in the container, `devices` files under /dev."""
        path = self._path(name)
        content = msgspec.json.encode(_spec(name, owner, _edits(environment, mounts, devices)))
        if not (path.exists() and path.read_bytes() == content):
            self._folder.mkdir(parents=True, exist_ok=True)
            atomic_files.write(path, content)
        self._owners[name] = owner

    def remove(self, name: str, pod_uid: PodUID) -> None:
        """Remove the file if it still belongs to this pod."""
        path = self._path(name)
        owner = _owner(path)
        if owner is None or owner.pod_uid == pod_uid:
            path.unlink(missing_ok=True)
            self._owners.pop(name, None)
            self._on_remove(name)
        else:
            self._owners[name] = owner

    def of_pod(self, pod_uid: PodUID) -> dict[str, Owner]:
        return {name: owner for name, owner in self._owners.items() if owner.pod_uid == pod_uid}

    def pods(self) -> set[PodUID]:
        return {owner.pod_uid for owner in self._owners.values()}

    def _path(self, name: str) -> Path:
        return self._folder / f"{PREFIX}{name}.json"


def _spec(name: str, owner: Owner, edits: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cdiVersion": VERSION,
        "kind": names.CDI_VENDOR_CLASS,
        "devices": [
            {
                "name": name,
                "annotations": {
                    names.CDI_POD_UID: owner.pod_uid,
                    names.CDI_CONTAINERS: ",".join(sorted(owner.containers)),
                },
                "containerEdits": edits,
            }
        ],
    }


def _edits(environment: Mapping[str, str], mounts: Sequence[tuple[str, str]], devices: Sequence[str]) -> dict[str, Any]:
    edits: dict[str, Any] = {"env": [f"{key}={value}" for key, value in environment.items()]}
    if devices:
        edits["deviceNodes"] = [{"path": path} for path in devices]
    if mounts:
        options = ["ro", "nosuid", "nodev", "bind"]
        edits["mounts"] = [{"hostPath": host, "containerPath": path, "options": options} for host, path in mounts]
    return edits


def _owner(path: Path) -> Owner | None:
    try:
        annotations = msgspec.json.decode(path.read_bytes())["devices"][0]["annotations"]
        return Owner(annotations[names.CDI_POD_UID], frozenset(annotations[names.CDI_CONTAINERS].split(",")))
    except (OSError, msgspec.DecodeError, LookupError, TypeError, AttributeError):
        return None
