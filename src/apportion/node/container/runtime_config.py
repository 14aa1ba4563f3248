"""Whether the container runtimes of the node are configured as Apportion needs it (T05).

No object of Kubernetes shows which variables an image sets, and NVIDIA's runtime follows them unless its own
configuration forbids it. Only the node can close this door, so the agent reads the configuration and reports it. The
files belong to the node, not to the image of the agent: they are read below a folder in which its root is seen.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Of a package on the node, and of NVIDIA's GPU operator
NVIDIA_FILES = (
    "/etc/nvidia-container-runtime/config.toml",
    "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
)
CONTAINERD_FILE = "/etc/containerd/config.toml"
BY_VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"
BY_MOUNT = "accept-nvidia-visible-devices-as-volume-mounts"
_CONTAINERD_PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")


@dataclass(frozen=True)
class RuntimeReport:
    """`status` is that of a condition; `message` names every problem with its fix. `ignoring` is the file because of
    which NVIDIA_VISIBLE_DEVICES of unprivileged containers is ignored; empty if it is not."""

    status: str
    reason: str
    message: str
    ignoring: str = ""


@dataclass(frozen=True)
class _Problem:
    reason: str
    message: str
    status: str = "False"


def check(root: Path) -> RuntimeReport | None:
    """None if NVIDIA's runtime is not installed, and containerd does not forbid CDI."""
    found, ignoring = False, ""
    problems: list[_Problem] = []
    for name in NVIDIA_FILES:
        settings = _read(root, name)
        found = found or settings is not None
        if isinstance(settings, dict) and settings.get(BY_VARIABLE, True) is False:
            ignoring = name
        problems += _problems_of_nvidia(name, settings) if settings is not None else ()
    problems += _problems_of_containerd(_read(root, CONTAINERD_FILE))
    if problems:
        text = "; ".join(problem.message for problem in problems)
        return RuntimeReport(problems[0].status, problems[0].reason, text, ignoring)
    if not found:
        return None
    restricted = "Containers get only the GPUs that are allocated to their pods"
    return RuntimeReport("True", "Restricted", restricted, ignoring)


def _problems_of_nvidia(name: str, settings: dict[str, Any] | _Problem) -> Iterator[_Problem]:
    if isinstance(settings, _Problem):
        yield settings
    elif settings.get(BY_VARIABLE, True) is not False:
        yield _Problem(
            "VariableAccepted",
            "NVIDIA's container runtime gives a container every GPU that NVIDIA_VISIBLE_DEVICES in its image names, "
            f"also if it is not allocated to its pod: set {BY_VARIABLE} = false and {BY_MOUNT} = true in {name}",
        )
    elif settings.get(BY_MOUNT, False) is not True:
        yield _Problem(
            "NoDeviceRequests",
            "NVIDIA's container runtime accepts neither variables nor mounts, so containers with slices get no driver "
            f"libraries: set {BY_MOUNT} = true in {name}; users cannot add such mounts",
        )


def _problems_of_containerd(settings: dict[str, Any] | _Problem | None) -> Iterator[_Problem]:
    if isinstance(settings, _Problem):
        yield settings
        return
    plugins = (settings or {}).get("plugins")
    for plugin in _CONTAINERD_PLUGINS:
        part = plugins.get(plugin) if isinstance(plugins, dict) else None
        if isinstance(part, dict) and part.get("enable_cdi") is False:
            yield _Problem(
                "CdiDisabled",
                "containerd gives no device to containers, because CDI is disabled: set enable_cdi = true in "
                f"[plugins.{plugin!r}] of {CONTAINERD_FILE}, and restart containerd",
            )


def _read(root: Path, name: str) -> dict[str, Any] | _Problem | None:
    """None if there is no such file."""
    try:
        return tomllib.loads((root / name.lstrip("/")).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return _Problem("ConfigurationUnreadable", f"{name} cannot be read: {error}", status="Unknown")
