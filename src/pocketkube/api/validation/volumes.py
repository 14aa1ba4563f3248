"""Rules for the volumes of a pod."""

from __future__ import annotations

from typing import Any

from pocketkube.api.validation import name_rules
from pocketkube.api.validation.problems import Problems

Obj = dict[str, Any]

_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_HIGHEST_MODE = 0o777
# In the order in which the real server tries them: of two sources the later one is reported.
_SOURCES = (
    *("emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi"),
    *("glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cephfs", "quobyte", "downwardAPI", "fc", "flexVolume"),
    *("configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos"),
    *("projected", "scaleIO", "csi", "ephemeral", "image"),
)

_REQUIRED = {"persistentVolumeClaim": ("claimName",), "nfs": ("server", "path")}


def volumes(found: Problems, path: str, given: list[Obj]) -> set[str]:
    """Checks all volumes and answers their names."""
    names: set[str] = set()
    for index, volume in enumerate(given):
        here, name = f"{path}[{index}]", volume.get("name") or ""
        _source(found, here, volume)
        if not name:
            found.required(f"{here}.name")
            continue
        wrong = name_rules.dns_label(name)
        found.all_of(f"{here}.name", name, wrong)
        if not wrong and name in names:
            found.duplicate(f"{here}.name", name)
        names.add(name)
    return names


def _source(found: Problems, path: str, volume: Obj) -> None:
    given = [name for name in _SOURCES if name in volume]
    if not given:
        found.required(path, "must specify a volume type")
    for name in given[1:]:
        found.forbidden(f"{path}.{name}", "may not specify more than 1 volume type")
    match given[:1]:
        case ["hostPath"]:
            _host_path(found, f"{path}.hostPath", volume["hostPath"])
        case ["secret"]:
            _files(found, f"{path}.secret", volume["secret"], "secretName")
        case ["configMap"]:
            _files(found, f"{path}.configMap", volume["configMap"], "name")
        case ["projected"]:
            _mode(found, f"{path}.projected.defaultMode", volume["projected"])
        case [name] if name in _REQUIRED:
            for field in _REQUIRED[name]:
                if not volume[name].get(field):
                    found.required(f"{path}.{name}.{field}")


def _host_path(found: Problems, path: str, source: Obj) -> None:
    place = source.get("path") or ""
    if not place:
        found.required(f"{path}.path")
    elif ".." in place.split("/"):
        found.invalid(f"{path}.path", place, "must not contain '..'")
    if source.get("type", "") not in _PATH_TYPES:
        found.unsupported(f"{path}.type", source["type"], _PATH_TYPES)


def _files(found: Problems, path: str, source: Obj, name: str) -> None:
    if not source.get(name):
        found.required(f"{path}.{name}")
    _mode(found, f"{path}.defaultMode", source)
    for index, item in enumerate(source.get("items") or ()):
        for field in ("key", "path"):
            if not item.get(field):
                found.required(f"{path}.items[{index}].{field}")


def _mode(found: Problems, path: str, source: Obj) -> None:
    mode = source.get("defaultMode")
    if mode is not None and not 0 <= mode <= _HIGHEST_MODE:
        why = "must be a number between 0 and 0777 (octal), both inclusive"
        found.invalid(path, mode, why)
