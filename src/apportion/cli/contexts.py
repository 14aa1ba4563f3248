"""Kubeconfigs of people: adding the entries of a cluster, selecting its context, and removing the entries again.

This follows kind. An entry belongs to a cluster if it leads to the server of that cluster. All other clusters, users
and contexts of a file stay as they are: an entry of the same name is never replaced, and `remove` leaves an entry that
was changed in the meantime. kubectl and similar programs hold `<file>.lock` while they write, and so does this module.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from apportion.cluster import input_files
from pocketkube import kubeconfig

LOCK_SECONDS = 10.0
STALE_SECONDS = 60.0
_LISTS = ("clusters", "users", "contexts")
_FIX = "fix the file, or set KUBECONFIG to another file"

Json = dict[str, Any]


class ContextError(Exception):
    """A kubeconfig that cannot be changed; the message names the file and a solution."""


def default_path() -> Path:
    """The file that kubectl writes to: the first one in $KUBECONFIG, otherwise the one in the home directory."""
    listed = environment_paths()
    return listed[0] if listed else Path(os.path.expanduser("~/.kube/config")).absolute()  # noqa: PTH111  never raises


def environment_paths() -> list[Path]:
    return [Path(part).absolute() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]


def check_free(path: Path, name: str) -> None:
    """Raises ContextError if the file has entries of this name already, or cannot be used."""
    _check_free(path, _read(path), _names(name), {})


def select(path: Path, ours: Json) -> str:
    """Add our entries to the file and select the context; returns the previously selected context."""
    wanted = {key: {entry["name"]: entry for entry in ours[key]} for key in _LISTS}
    with _locked(path):
        config = _read(path)
        _check_free(path, config, {key: set(entries) for key, entries in wanted.items()}, wanted)
        before = str(config.get("current-context") or "")
        for key, entries in wanted.items():
            config[key] = [entry for entry in config.get(key) or () if entry.get("name") not in entries]
            config[key] += entries.values()
        config["current-context"] = ours["current-context"]
        _write(path, config)
    return before if before != ours["current-context"] else ""


def remove(path: Path, name: str, server: str, before: str = "") -> None:
    """Remove the entries of a cluster, and select the previous context if it still exists. A file that then has no
    entry is deleted."""
    if not path.exists():
        return
    with _locked(path):
        config = _read(path)
        if server not in servers(config, name):
            return
        for key, mine in _names(name).items():
            config[key] = [entry for entry in config.get(key) or () if entry.get("name") not in mine]
        if config.get("current-context") == name:
            known = {entry.get("name") for entry in config["contexts"]}
            config["current-context"] = before if before in known else ""
        if not any(config[key] for key in _LISTS):
            path.unlink()
        else:
            _write(path, config)


def servers(config: Json, cluster: str | None = None) -> set[str]:
    """The servers of all clusters of a kubeconfig, or of the one with this name."""
    found = [entry for entry in config["clusters"] if cluster is None or entry.get("name") == cluster]
    return {str(entry["cluster"].get("server")) for entry in found if isinstance(entry.get("cluster"), dict)}


def current_server(config: Json) -> str:
    """The server that kubectl would use; empty if the file selects none."""
    name = config.get("current-context")
    chosen = [entry.get("context") for entry in config["contexts"] if entry.get("name") == name]
    cluster = chosen[0].get("cluster") if chosen and isinstance(chosen[0], dict) else None
    return next(iter(servers(config, str(cluster))), "") if cluster else ""


def read(path: Path) -> Json:
    """A kubeconfig with all its lists; an empty one if there is no file. Raises ContextError."""
    return _read(path)


def _names(name: str) -> dict[str, set[str]]:
    return {"clusters": {name}, "users": {f"{name}-admin"}, "contexts": {name}}


def _check_free(path: Path, config: Json, names: dict[str, set[str]], same: dict[str, dict[str, Json]]) -> None:
    for key, taken in names.items():
        for entry in config[key]:
            name = entry.get("name")
            if name in taken and entry != same.get(key, {}).get(name):
                raise ContextError(
                    f"{path} already has an entry {name!r} under {key}, which is not replaced: use another --name, "
                    "or remove the entry with kubectl config"
                )


def _read(path: Path) -> Json:
    try:
        config = yaml.safe_load(input_files.text(path))
    except FileNotFoundError:
        config = None
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise ContextError(f"{path}: cannot be read ({_one_line(error)}): {_FIX}") from None
    if config is None:
        config = {"apiVersion": "v1", "kind": "Config"}
    if not isinstance(config, dict) or not all(_is_list(config.get(key)) for key in _LISTS):
        raise ContextError(f"{path}: not a kubeconfig: {_FIX}")
    return config | {key: list(config.get(key) or ()) for key in _LISTS}


def _is_list(entries: object) -> bool:
    return entries is None or (isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _write(path: Path, config: Json) -> None:
    """Atomically, and never readable by other users: it contains a token."""
    try:
        kubeconfig.write(path.resolve(), config)  # a symbolic link is kept
    except OSError as error:
        raise ContextError(f"{path}: cannot be written ({error.strerror}): {_FIX}") from None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = path.with_name(f"{path.name}.lock")
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
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
            raise ContextError(f"{path}: cannot be written ({error.strerror}): {_FIX}") from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _drop_stale(lock: Path) -> None:
    """A killed program leaves its lock behind; no program holds one for a minute."""
    with contextlib.suppress(OSError):
        if time.time() - lock.stat().st_mtime > STALE_SECONDS:
            lock.unlink()
