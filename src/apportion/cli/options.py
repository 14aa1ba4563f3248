"""Options that several commands have, each checked before the command does anything.

A value that can never work ends the command at once, with the option, the value and the fix, and exit code 2.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Annotated

import typer

from apportion.cluster import log_levels

LARGEST_PORT = 65535
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE = re.compile(_LABEL)
_OBJECT = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_OBJECT = 253


def log_level(value: str) -> str:
    if log_levels.parse(value) is None:
        raise typer.BadParameter(f"{value!r} is not a log level: use one of {', '.join(log_levels.NAMES)}")
    return value


def address(value: str) -> str:
    """`host:port`, `:port` or `[v6]:port`."""
    host, colon, port = value.rpartition(":")
    right = bool(colon) and port.isascii() and port.isdecimal() and int(port) <= LARGEST_PORT
    if not right or not host.isprintable() or " " in host:
        raise typer.BadParameter(
            f"{value!r} is not an address: use host:port with a port up to {LARGEST_PORT}, such as 127.0.0.1:9400"
        )
    return value


def namespace(value: str | None) -> str | None:
    if value is not None and not _NAMESPACE.fullmatch(value):
        raise typer.BadParameter(f"{value!r} is not a namespace: use at most 63 of a-z, 0-9 and '-'")
    return value


def object_name(value: str) -> str:
    if not is_object_name(value):
        raise typer.BadParameter(
            f"{value!r} is not an object name: use at most {_LONGEST_OBJECT} of a-z, 0-9, '-' and '.'"
        )
    return value


def is_object_name(value: str) -> bool:
    return len(value) <= _LONGEST_OBJECT and _OBJECT.fullmatch(value) is not None


def seconds(value: float) -> float:
    """A finite number of seconds, not negative."""
    if not math.isfinite(value) or value < 0:
        raise typer.BadParameter(f"{value:g} is not a number of seconds: use 0 or more, such as 30")
    return value


def positive_seconds(value: float) -> float:
    if not math.isfinite(value) or value <= 0:
        raise typer.BadParameter(f"{value:g} is not a number of seconds above 0: use a number such as 30")
    return value


def check_writable(path: Path, option: str) -> None:
    """Raises BadParameter if the file of an option cannot be written."""
    try:
        if path.is_dir():
            wrong = "is a directory; specify a file in it"
        elif path.exists():
            wrong = "" if os.access(path, os.W_OK) else "is not writable; specify another file"
        elif not path.parent.is_dir():
            wrong = f"directory {path.parent} does not exist; create it, or specify another file"
        else:
            wrong = "" if os.access(path.parent, os.W_OK) else "its directory is not writable; specify another file"
    except OSError as error:
        wrong = f"{error.strerror}; specify another file"
    if wrong:
        raise typer.BadParameter(f"{path}: {wrong}", param_hint=option)


PlaneLogLevel = Annotated[
    str,
    typer.Option(
        "--log-level",
        help="Log level: Normal, Debug, Trace or TraceAll.",
        envvar="APPORTION_LOG_LEVEL",
        callback=log_level,
    ),
]
Probes = Annotated[
    str,
    typer.Option(
        "--probes", help="Address for /healthz, /readyz and /metrics.", envvar="APPORTION_PROBES", callback=address
    ),
]
LeaseName = Annotated[
    str,
    typer.Option(
        "--lease-name",
        help="Lease for leader election; all replicas must use the same one.",
        callback=object_name,
    ),
]
LeaseDuration = Annotated[
    float,
    typer.Option(
        "--lease-duration",
        help="Seconds after which a leader that does not renew its lease is replaced.",
        callback=positive_seconds,
    ),
]
