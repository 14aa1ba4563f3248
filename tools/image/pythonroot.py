"""The lowest layer of our image: Python 3.11 and the libraries it needs, unpacked from Debian's packages.

No package manager, no shell but busybox; what a Debian base image would add is not needed to run Python.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import bytecode
import debian
import oci
import recipes
from reporting import Step

PACKAGES = (
    "busybox-static",
    "libbz2-1.0",
    "libc6",
    "libcrypt1",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libssl3",
    "libstdc++6",
    "libuuid1",
    "python3.11-minimal",
    "zlib1g",
)
# Folders that Debian has merged into /usr; packages still name some files by the old paths.
MERGED = ("bin", "lib", "lib64", "sbin")
LEFT_OUT = (
    "usr/share",
    "usr/lib/python3.11/ensurepip",
    "usr/lib/python3.11/idlelib",
    "usr/lib/python3.11/lib2to3",
    "usr/lib/python3.11/pydoc_data",
    "usr/lib/python3.11/tkinter",
    "usr/lib/python3.11/turtledemo",
)
USERS = b"root:x:0:0:root:/root:/bin/sh\napportion:x:65532:65532:apportion:/tmp:/bin/sh\n"
GROUPS = b"root:x:0:\napportion:x:65532:\n"


def layer() -> Path:
    """The layer's tar, made once per set of packages."""
    path = recipes.cache() / "image-layers" / f"python-{_key()}.tar"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with Step("image: Python from Debian's packages"), tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            root = Path(scratch) / "root"
            _unpack(root)
            bytecode.compile_tree(root / "usr/lib/python3.11")
            beside = Path(scratch) / "layer.tar"
            _fill(oci.Layer(beside), root)
            beside.replace(path)
    return path


def _unpack(root: Path) -> None:
    debian.fetch(list(PACKAGES), root)
    for name in MERGED:
        (root / name).mkdir(exist_ok=True)
        shutil.copytree(root / name, root / "usr" / name, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(root / name)
        (root / name).symlink_to(f"usr/{name}")


def _fill(layer: oci.Layer, root: Path) -> None:
    for name in ("dev", "proc", "root", "run", "sys", "var"):
        layer.folder(name)
    layer.folder("tmp", 0o1777)
    layer.tree(root, leave_out=LEFT_OUT)
    commands = subprocess.run(
        [str(root / "usr/bin/busybox"), "--list"], capture_output=True, text=True, check=True
    ).stdout.split()
    for command in sorted(set(commands) - {"busybox"}):
        layer.link(f"usr/bin/{command}", "busybox")
    layer.link("usr/bin/python3", "python3.11")
    layer.file("etc/passwd", USERS)
    layer.file("etc/group", GROUPS)
    layer.close()


def _key() -> str:
    """Of the list of packages above and of how they are laid out; a security update of one of them needs a new list."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(Path(bytecode.__file__).read_bytes())
    return digest.hexdigest()[:12]
