"""Where the programs of a real Kubernetes are, and the one line that says how to get the missing ones.

`tools/real/build.py` is the authority on versions and cache folders; it is asked once per run.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.environments import cgroups

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "tools" / "real" / "build.py"

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE = ("containerd", "containerd-shim-runc-v2", "ctr", "kubelet", "runc", "cni-plugins", "busybox")


def path(name: str) -> Path:
    found = locate(name)
    if found is None:
        raise FileNotFoundError(f"{name} is missing: run `make real`")
    return found


def locate(name: str) -> Path | None:
    built = _built().get(name)
    if built:
        return Path(built)
    # Only kubectl may be whichever the machine has: all others must be the pinned version.
    on_path = shutil.which("kubectl") if name == "kubectl" else None
    return Path(on_path) if on_path else None


def missing(names: tuple[str, ...] = CONTROL_PLANE + NODE) -> list[str]:
    return [name for name in names if locate(name) is None]


def build(*names: str) -> None:
    """Makes sure of pieces that are built when a test first needs them (helm, kueue)."""
    if missing(names):
        subprocess.run([sys.executable, str(BUILD), *names], check=True)
        _built.cache_clear()


def obstacles(names: tuple[str, ...]) -> str | None:
    """Why a real cluster cannot run here, in one line with the remedy; None if it can."""
    absent = missing(names)
    if absent:
        return f"{', '.join(absent)} missing: run `make real`"
    if os.geteuid() != 0:
        return "namespaces need root: run the tests as root (or in a privileged container)"
    for tool in ("unshare", "nsenter", "ip", "mount"):
        if not shutil.which(tool):
            return f"`{tool}` missing: install util-linux and iproute2"
    return _refused_namespaces() or (_refused_cgroups() if "kubelet" in names else None)


@functools.cache
def _built() -> dict[str, str | None]:
    answer = subprocess.run(
        [sys.executable, str(BUILD), "--list", "-o", "json"], capture_output=True, text=True, check=True
    )
    found: dict[str, str | None] = json.loads(answer.stdout)
    return found


@functools.cache
def _refused_namespaces() -> str | None:
    probe = subprocess.run(
        ["unshare", "--pid", "--net", "--mount", "--fork", "ip", "link", "add", "probe0", "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        why = (probe.stderr.strip() or f"exit code {probe.returncode}").splitlines()[-1]
        return f"this machine allows no namespaces with a bridge ({why}): use a privileged container or a VM"
    return None


def _refused_cgroups() -> str | None:
    folder = cgroups.MOUNT
    if not (folder / "memory").is_dir() and not (folder / "cgroup.controllers").exists():
        return f"no cgroups under {folder}: mount them (a privileged container has them)"
    if not os.access(folder / "memory" if (folder / "memory").is_dir() else folder, os.W_OK):
        return f"{folder} is read-only: use a privileged container or a VM"
    return None
