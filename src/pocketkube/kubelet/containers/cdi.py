"""The Container Device Interface: from a device's name to what it adds to a container.

Folders are read in order, later ones win. Two files of one folder that define the same device make it
unresolvable, as in every container runtime.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pocketkube.kubelet import confined_paths

# Pods that mount the folders can write there, and this process reads them.
_LARGEST, _MOST_FILES = {".json": 1_048_576, ".yaml": 32_768}, 1_000
FOLDERS = ("etc/cdi", "var/run/cdi")
_VERSION = re.compile(r"(0\.[3-9]\.\d+|1\.0\.\d+)")
_KIND = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?/[A-Za-z]([\w.-]*[A-Za-z0-9])?")


class CdiError(Exception):
    """A device name that no file explains."""


@dataclass
class Edits:
    """What devices add to a container."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: list[tuple[str, str]] = field(default_factory=list)  # host path, container path

    def add(self, raw: dict[str, Any]) -> None:
        for entry in raw.get("env") or []:
            name, _, value = entry.partition("=")
            self.env[name] = value
        self.mounts += [(mount["hostPath"], mount["containerPath"]) for mount in raw.get("mounts") or []]


def resolve(root: Path, names: Iterable[str]) -> Edits:
    """The edits of all named devices in order; of one variable the last value wins."""
    wanted = list(names)
    edits = Edits()
    if not wanted:
        return edits
    devices = _devices(root)
    missing = [name for name in wanted if devices.get(name) is None]
    if missing:
        raise CdiError(f"failed to inject CDI devices: unresolvable CDI devices {', '.join(missing)}")
    whole: set[str] = set()
    for name in wanted:
        kind, spec, device = devices[name] or ("", {}, {})
        if kind not in whole:
            whole.add(kind)
            edits.add(spec.get("containerEdits") or {})
        edits.add(device.get("containerEdits") or {})
    return edits


_Device = tuple[str, dict[str, Any], dict[str, Any]]


def _devices(root: Path) -> dict[str, _Device | None]:
    """Every device by its qualified name; None marks a conflict."""
    found: dict[str, _Device | None] = {}
    for folder in FOLDERS:
        here: dict[str, _Device | None] = {}
        for path in sorted((root / folder).glob("*"))[:_MOST_FILES]:
            for name, device in _read(path).items():
                here[name] = None if name in here else device
        found |= here
    return found


def _read(path: Path) -> dict[str, _Device]:
    """The devices of one file; nothing if it is no valid one."""
    if path.suffix not in _LARGEST or path.name.startswith("."):
        return {}
    try:
        text = confined_paths.read_bytes(path, _LARGEST[path.suffix] + 1)
        if len(text) > _LARGEST[path.suffix]:
            return {}
        # The loader in C would be faster, but a deep document ends the process.
        spec = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    if not isinstance(spec, dict) or not _is_valid(spec):
        return {}
    return {f"{spec['kind']}={device['name']}": (str(path), spec, device) for device in spec["devices"]}


def _is_valid(spec: dict[str, Any]) -> bool:
    devices = spec.get("devices")
    return (
        _VERSION.fullmatch(str(spec.get("cdiVersion"))) is not None
        and _KIND.fullmatch(str(spec.get("kind"))) is not None
        and isinstance(devices, list)
        and all(isinstance(device, dict) and device.get("name") and device.get("containerEdits") for device in devices)
    )
