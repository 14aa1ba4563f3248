"""Images: which run as child processes, and what the others run when their container names no command.

An image that is in no table runs until it is stopped. A registry under `.invalid` has no images, so a pull that
fails can be shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import resources
from typing import Any

import msgspec
import yaml


@dataclass(frozen=True)
class ProcessImage:
    """An image whose containers run as child processes.

    `command` replaces the first word of the container's own command. `service_account_env` names the variable that
    tells the process in which folder the files of its service account are.
    """

    repository: str  # the last part of the image's name, without registry and tag
    command: tuple[str, ...]
    service_account_env: str = ""


class DefaultCommand(msgspec.Struct):
    """`match` is a pattern for the whole image name."""

    match: str
    command: list[str]


class Pull(msgspec.Struct, frozen=True):
    """How pulling an image ends: an empty error means that it is there."""

    error: str = ""


class Images:
    """The images that the nodes of one cluster know."""

    def __init__(
        self, processes: Sequence[ProcessImage] = (), commands: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._processes = {each.repository: each for each in processes}
        self._commands = [DefaultCommand(match, list(words)) for match, words in (commands or {}).items()]
        self._commands += _table()

    def process(self, image: str) -> ProcessImage | None:
        """How containers of this image run as child processes; None if they are simulated."""
        return self._processes.get(_repository(image))

    def argv(self, container: Mapping[str, Any]) -> list[str]:
        """The command line of a container that is simulated; empty means: run until stopped.

        Of a child process, what follows the command of its image."""
        image = container.get("image", "")
        command, args = list(container.get("command") or []), list(container.get("args") or [])
        if self.process(image) is not None:
            return command[1:] + args
        return command + args or self._default_command(image)

    def _default_command(self, image: str) -> list[str]:
        for each in self._commands:
            if fnmatch(image, each.match) or fnmatch(image, f"*/{each.match}"):
                return each.command
        return []


def pull(image: str) -> Pull:
    registry = image.partition("/")[0].partition(":")[0]
    if "/" in image and registry.endswith(".invalid"):
        return Pull(
            f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": '
            f"dial tcp: lookup {registry}: no such host"
        )
    return Pull()


def _table() -> list[DefaultCommand]:
    if not _loaded:
        text = (resources.files(__package__) / "images.yaml").read_text()
        _loaded.extend(msgspec.convert(yaml.safe_load(text), list[DefaultCommand]))
    return _loaded


_loaded: list[DefaultCommand] = []


def _repository(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]
