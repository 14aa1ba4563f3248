"""What an image runs when its container names no command.

Images of ours run as child processes. Of all others a table says what they would do; an image that is not in it
runs until it is stopped. A registry under `.invalid` has no images, so a pull that fails can be shown.
"""

from __future__ import annotations

from fnmatch import fnmatch
from importlib import resources
from typing import Any

import msgspec
import yaml

from apportion.apis import names


class Program(msgspec.Struct):
    """`match` is a pattern for the whole image name."""

    match: str
    command: list[str]


class Pull(msgspec.Struct, frozen=True):
    """How pulling an image ends: an empty error means that it is there."""

    error: str = ""


def is_ours(image: str) -> bool:
    return _repository(image).rpartition("/")[2] == names.IMAGE_REPOSITORY


def pull(image: str) -> Pull:
    registry = image.partition("/")[0].partition(":")[0]
    if "/" in image and registry.endswith(".invalid"):
        return Pull(
            f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": '
            f"dial tcp: lookup {registry}: no such host"
        )
    return Pull()


def argv(container: dict[str, Any]) -> list[str]:
    """The command line of a simulated container; empty means: run until stopped."""
    command = list(container.get("command") or [])
    args = list(container.get("args") or [])
    return command + args or _default_command(container.get("image", ""))


def our_argv(container: dict[str, Any]) -> list[str]:
    """The words after `apportion` of a container of our image."""
    command = list(container.get("command") or [])
    return command[1:] + list(container.get("args") or [])


def _default_command(image: str) -> list[str]:
    for program in _table():
        if fnmatch(image, program.match) or fnmatch(image, f"*/{program.match}"):
            return program.command
    return []


def _table() -> list[Program]:
    if not _loaded:
        text = (resources.files(__package__) / "images.yaml").read_text()
        _loaded.extend(msgspec.convert(yaml.safe_load(text), list[Program]))
    return _loaded


_loaded: list[Program] = []


def _repository(image: str) -> str:
    name = image.partition("@")[0]
    base, slash, last = name.rpartition("/")
    return base + slash + last.partition(":")[0]
