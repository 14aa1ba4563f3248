"""Fetches Debian packages and unpacks them into the cache; nothing is installed.

The machine's own package lists are used when they know the package. When they do not (a fresh container has
none), lists are fetched into the cache with the machine's sources, which needs no root.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import recipes
from reporting import CannotBuildError, Step


def unpack(piece: recipes.DebianPackage) -> None:
    if piece.path.exists():
        return
    with Step(f"{piece.package} from Debian's packages"):
        fetch([piece.package], piece.root)
    if not piece.path.exists():
        raise CannotBuildError(f"the package {piece.package} has no {piece.inside}; this distribution is not Debian 12")


def fetch(packages: list[str], root: Path) -> None:
    """All files of these packages under `root`, which appears complete or not at all."""
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise CannotBuildError(
                f"{tool} is missing: {', '.join(packages)} come from Debian's packages; run this on Debian 12 or Ubuntu"
            )
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=f".{root.name}.") as beside:
        archives, unpacked = Path(beside) / "archives", Path(beside) / "root"
        archives.mkdir()
        # apt drops to its own user for downloads and complains where that user cannot write.
        archives.chmod(0o777)
        Path(beside).chmod(0o755)
        download(packages, archives)
        unpacked.mkdir()
        for archive in sorted(archives.glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(archive), str(unpacked)], check=True, capture_output=True)
        shutil.rmtree(root, ignore_errors=True)
        unpacked.replace(root)


def download(packages: list[str], folder: Path) -> None:
    """The `.deb` files of these packages, checked by apt against the signed lists."""
    with_system_lists = _download(packages, folder, [])
    if with_system_lists.returncode == 0:
        return
    private = _private_lists()
    again = _download(packages, folder, private)
    if again.returncode:
        why = (again.stderr.strip() or "no output").splitlines()[-1]
        raise CannotBuildError(f"apt-get download {' '.join(packages)} failed: {why} (is a Debian mirror reachable?)")


def _download(packages: list[str], folder: Path, options: list[str]) -> subprocess.CompletedProcess[str]:
    command = ["apt-get", *options, "-o", "APT::Sandbox::User=root", "-qq", "download", *packages]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _private_lists() -> list[str]:
    state = recipes.cache() / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    options = ["-o", f"Dir::State::lists={state}/lists", "-o", f"Dir::Cache={state}/cache"]
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    if sources.exists():
        # Other sources of this machine may be out of reach and are of no use here.
        options += ["-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=-"]
    update = ["apt-get", *options, "-o", "APT::Sandbox::User=root", "-qq", "update"]
    subprocess.run(update, capture_output=True, text=True, check=False)
    return options
