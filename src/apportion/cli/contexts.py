"""The default kubeconfig of kubectl: adding and selecting the context of a cluster, and removing it again.

This follows kind. Other clusters, users and contexts of the file do not change, and `remove` selects the
previous context again. kubectl and similar programs hold `<file>.lock` while they write, and so does this module.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pocketkube import kubeconfig

LOCK_SECONDS = 10.0
STALE_SECONDS = 60.0
_LISTS = ("clusters", "users", "contexts")

Json = dict[str, Any]


class ContextError(Exception):
    """A kubeconfig that cannot be changed; the message names the file and a solution."""


def default_path() -> Path:
    """The file that kubectl writes to: the first one in $KUBECONFIG, otherwise the one in the home directory."""
    listed = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return Path(listed[0]).absolute() if listed else Path.home() / ".kube" / "config"


def select(path: Path, ours: Json) -> str:
    """Add our entries to the file and select the context; returns the previously selected context."""
    with _locked(path):
        config = _read(path)
        before = str(config.get("current-context") or "")
        for key in _LISTS:
            mine = {entry["name"] for entry in ours[key]}
            config[key] = [entry for entry in config.get(key) or () if entry.get("name") not in mine] + ours[key]
        config["current-context"] = ours["current-context"]
        _write(path, config)
    return before if before != ours["current-context"] else ""


def remove(path: Path, name: str, before: str = "") -> None:
    """Remove the entries of a cluster, and select the previous context if it still exists."""
    if not path.exists():
        return
    with _locked(path):
        config = _read(path)
        if all(name != entry.get("name") for key in _LISTS for entry in config.get(key) or ()):
            return
        for key, mine in zip(_LISTS, (name, f"{name}-admin", name), strict=True):
            config[key] = [entry for entry in config.get(key) or () if entry.get("name") != mine]
        if config.get("current-context") == name:
            known = {entry.get("name") for entry in config["contexts"]}
            config["current-context"] = before if before in known else ""
        if not any(config[key] for key in _LISTS):
            path.unlink()
        else:
            _write(path, config)


def _read(path: Path) -> Json:
    try:
        config = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        config = None
    except (OSError, yaml.YAMLError) as error:
        raise ContextError(
            f"{path}: cannot be read ({error}): fix the file, or set KUBECONFIG to another file"
        ) from None
    if config is None:
        return {"apiVersion": "v1", "kind": "Config"}
    if not isinstance(config, dict):
        raise ContextError(f"{path}: not a kubeconfig: fix the file, or set KUBECONFIG to another file")
    return config


def _write(path: Path, config: Json) -> None:
    """Atomically, and never readable by other users: it contains a token."""
    kubeconfig.write(path.resolve(), config)  # a symbolic link is kept


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = path.with_name(f"{path.name}.lock")
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            break
        except FileExistsError:
            _drop_stale(lock)
            if time.monotonic() >= end:
                raise ContextError(
                    f"{lock}: the kubeconfig is locked by another program; delete the lock if no program uses it"
                ) from None
            time.sleep(0.05)
        except OSError as error:
            raise ContextError(
                f"{path}: cannot be written ({error.strerror}): set KUBECONFIG to another file"
            ) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _drop_stale(lock: Path) -> None:
    """A killed program leaves its lock behind; no program holds one for a minute."""
    with contextlib.suppress(OSError):
        if time.time() - lock.stat().st_mtime > STALE_SECONDS:
            lock.unlink()
