"""The kubeconfig of an embedded cluster: a file of its own, readable by its owner alone."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import yaml


def content(*, name: str, server: str, ca: bytes, token: str) -> dict[str, Any]:
    certificate = base64.b64encode(ca).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": certificate}}],
        "users": [{"name": f"{name}-admin", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"{name}-admin"}}],
        "current-context": name,
    }


def write(path: Path, config: dict[str, Any]) -> None:
    """Put the file there in one step; it never exists with wider rights than its owner's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        yaml.safe_dump(config, file, sort_keys=False)
    beside.replace(path)
