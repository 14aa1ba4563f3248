"""The workload image: busybox with all its commands, and nothing else."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from pathlib import Path

import debian
import oci
import recipes

NAMES = (
    "apportion.io/test/workload:1",
    "docker.io/library/busybox:1.36",
    "docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04",
    "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0",
    "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0-ubi8",
)
FOLDERS = ("bin", "dev", "etc", "proc", "root", "run", "sys", "usr", "usr/bin", "var")


def build() -> Path:
    piece = recipes.pieces()["busybox"]
    assert isinstance(piece, recipes.DebianPackage)
    debian.unpack(piece)
    folder = recipes.cache() / f"workload-image-{_key(piece.path)}"
    archive = folder / "workload.tar"
    if archive.exists():
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    layer = folder / "layer.tar"
    _fill(oci.Layer(layer), piece.path)
    config = {"Env": ["PATH=/bin:/usr/bin"], "Cmd": ["/bin/sleep", "2147483647"]}
    oci.write(oci.Image(NAMES, [layer], platform.machine(), config), archive)
    return archive


def _fill(layer: oci.Layer, busybox: Path) -> None:
    for folder in FOLDERS:
        layer.folder(folder)
    layer.folder("tmp", 0o1777)
    layer.file("bin/busybox", busybox.read_bytes(), 0o755)
    commands = subprocess.run([str(busybox), "--list"], capture_output=True, text=True, check=True).stdout.split()
    for command in sorted(set(commands) - {"busybox"}):
        layer.link(f"bin/{command}", "busybox")
    layer.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    layer.close()


def _key(busybox: Path) -> str:
    digest = hashlib.sha256(busybox.read_bytes())
    for source in (Path(__file__), Path(oci.__file__)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]
