"""Our image: Python, the locked dependencies and the wheel of this work tree, each a layer of its own.

A change of our code makes one small new layer; the others come from the cache.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import bytecode
import oci
import pythonroot
import recipes
from reporting import CannotBuildError, Step

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "runtime.txt"
PACKAGES = "usr/local/lib/python3.11/dist-packages"
LAUNCHER = b"""#!/usr/bin/python3.11
import sys

from apportion.__main__ import main

sys.exit(main())
"""


def build() -> Path:
    layers = [pythonroot.layer(), _dependencies(), _ours()]
    key = hashlib.sha256("".join(layer.name for layer in layers).encode()).hexdigest()[:12]
    archive = recipes.cache() / "images" / f"apportion-{key}.tar"
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    config = {
        "Entrypoint": ["apportion"],
        "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"],
        "User": "65532:65532",
        "WorkingDir": "/",
    }
    oci.write(oci.Image(names(), layers, platform.machine(), config), archive)
    for kind in ("images/apportion", "image-layers/apportion", "image-layers/dependencies", "image-layers/python"):
        _forget_older(f"{kind}-*.tar")
    return archive


def names() -> list[str]:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return [f"ghcr.io/apportion/apportion:{version}", "docker.io/library/apportion:latest"]


def _dependencies() -> Path:
    digest = hashlib.sha256(LOCK.read_bytes() + Path(__file__).read_bytes() + platform.machine().encode())
    path = recipes.cache() / "image-layers" / f"dependencies-{digest.hexdigest()[:12]}.tar"
    if not path.exists():
        with Step("image: locked dependencies"):
            _layer_of(path, ["--require-hashes", "--requirement", str(LOCK)], {})
    return path


def _ours() -> Path:
    with tempfile.TemporaryDirectory() as folder:
        _uv("build", "--quiet", "--wheel", "--out-dir", folder, str(ROOT))
        (wheel,) = Path(folder).glob("*.whl")
        path = recipes.cache() / "image-layers" / f"apportion-{_content_key(wheel)}.tar"
        if not path.exists():
            _layer_of(path, ["--no-deps", str(wheel)], {"usr/local/bin/apportion": LAUNCHER})
    return path


def _layer_of(path: Path, install: list[str], programs: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        target = Path(scratch) / "packages"
        platform_tag = f"{platform.machine()}-manylinux_2_28"
        _uv(
            *("pip", "install", "--quiet", "--target", str(target), "--only-binary", ":all:"),
            *("--python-version", "3.11", "--python-platform", platform_tag, *install),
        )
        # Launchers of dependencies name this machine's Python; nobody runs them.
        shutil.rmtree(target / "bin", ignore_errors=True)
        (target / ".lock").unlink(missing_ok=True)
        bytecode.compile_tree(target)
        layer = oci.Layer(Path(scratch) / "layer.tar")
        layer.tree(target, under=PACKAGES)
        for name, content in programs.items():
            layer.file(name, content, 0o755)
        layer.close()
        (Path(scratch) / "layer.tar").replace(path)


def _content_key(wheel: Path) -> str:
    """Of what is in the wheel, not of the file: two builds of one source differ in times."""

    digest = hashlib.sha256(Path(__file__).read_bytes() + Path(bytecode.__file__).read_bytes())
    with zipfile.ZipFile(wheel) as content:
        for name in sorted(content.namelist()):
            digest.update(name.encode() + content.read(name))
    return digest.hexdigest()[:12]


def _uv(*arguments: str) -> None:
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        raise CannotBuildError("uv is missing: run `make develop` and use .venv/bin/python")
    done = subprocess.run([uv, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotBuildError(
            f"uv {' '.join(arguments[:2])} failed: {' | '.join(done.stderr.strip().splitlines()[-3:])}"
        )


def _forget_older(pattern: str) -> None:
    """Every change of our code makes a new archive of two hundred megabytes: the last three stay."""
    by_age = sorted(recipes.cache().glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in by_age[3:]:
        old.unlink(missing_ok=True)
