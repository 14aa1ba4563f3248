"""Writes OCI image archives: layers, a config, a manifest, and an index that names the image.

Everything is deterministic (fixed times, owners and order), so equal content is an equal digest, and a node that
already has the image notices.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MEDIA = "application/vnd.oci.image"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Image:
    """`config` is the OCI runtime part: Entrypoint, Cmd, Env, User, WorkingDir."""

    names: Sequence[str]
    layers: Sequence[Path]
    machine: str
    config: Mapping[str, Any] = field(default_factory=dict)


class Layer:
    """An uncompressed tar that is filled file by file."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path, "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115  closed by close()

    def folder(self, name: str, mode: int = 0o755) -> None:
        self._add(name, tarfile.DIRTYPE, mode)

    def link(self, name: str, target: str) -> None:
        info = _info(name, tarfile.SYMTYPE, 0o777)
        info.linkname = target
        self._tar.addfile(info)

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        info = _info(name, tarfile.REGTYPE, mode)
        info.size = len(content)
        self._tar.addfile(info, io.BytesIO(content))

    def tree(self, root: Path, *, under: str = "", leave_out: Iterable[str] = ()) -> None:
        """All of `root` in name order, except paths that begin with one of `leave_out`."""
        unwanted = tuple(leave_out)
        for path in sorted(root.rglob("*")):
            relative = path.relative_to(root).as_posix()
            if relative.startswith(unwanted):
                continue
            name = f"{under}/{relative}".lstrip("/")
            if path.is_symlink():
                self.link(name, str(path.readlink()))
            elif path.is_dir():
                self.folder(name)
            elif path.is_file():
                self.file(name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o111 else 0o644)

    def close(self) -> None:
        self._tar.close()

    def _add(self, name: str, kind: bytes, mode: int) -> None:
        self._tar.addfile(_info(name, kind, mode))


def write(image: Image, archive: Path) -> None:
    platform = {"architecture": _ARCHITECTURES[image.machine], "os": "linux"}
    layers = [(layer, _digest(layer.read_bytes())) for layer in image.layers]
    config = _encoded(
        {**platform, "config": image.config, "rootfs": {"type": "layers", "diff_ids": [digest for _, digest in layers]}}
    )
    manifest = _encoded(
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": _described(f"{_MEDIA}.config.v1+json", config),
            "layers": [
                {"mediaType": f"{_MEDIA}.layer.v1.tar", "digest": digest, "size": layer.stat().st_size}
                for layer, digest in layers
            ],
        }
    )
    described = _described(f"{_MEDIA}.manifest.v1+json", manifest) | {"platform": platform}
    index = _encoded(
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.index.v1+json",
            "manifests": [described | {"annotations": _named(name)} for name in image.names],
        }
    )
    beside = archive.with_name(f".{archive.name}.new")
    with tarfile.open(beside, "w") as tar:
        _put(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _put(tar, "index.json", index)
        for content in (config, manifest):
            _put(tar, _blob(_digest(content)), content)
        for layer, digest in {digest: (layer, digest) for layer, digest in layers}.values():
            _put(tar, _blob(digest), layer.read_bytes())
    beside.replace(archive)


def _named(name: str) -> dict[str, str]:
    return {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}


def _described(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = _info(name, tarfile.REGTYPE, 0o644)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _info(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = mode
    return info
