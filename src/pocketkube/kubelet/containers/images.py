"""Images: which run as child processes or coroutines, and what the others run when their container names no command.

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

from pocketkube.kubelet.runtime.coroutines import CoroutineImage, Main


@dataclass(frozen=True, kw_only=True)
class ProcessImage:
    """An image whose containers run as child processes on the machine of the cluster.

    Whoever may create pods in one of its namespaces starts processes there, so everything is limited: the commands,
    the variables that a pod may set, and the files, which are always those of the container.
    """

    image: str  # the whole reference: another registry, tag or digest is another image
    namespaces: frozenset[str]  # elsewhere the image is simulated
    program: str  # the first word of a container's command
    command: tuple[str, ...]  # what it stands for
    subcommands: Mapping[str, Mapping[str, str]]
    """The second words that are allowed, each with its options for paths and the paths of the container that they
    have if they are not given."""
    environment: frozenset[str] = frozenset()  # variables that a pod may set
    environment_prefix: str = ""  # and all that begin with this
    service_account_env: str = ""  # tells the process in which folder the files of its service account are

    def takes(self, variable: str) -> bool:
        prefixed = bool(self.environment_prefix) and variable.startswith(self.environment_prefix)
        return prefixed or variable in self.environment


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
        self,
        processes: Sequence[ProcessImage] = (),
        commands: Mapping[str, Sequence[str]] | None = None,
        coroutines: Sequence[CoroutineImage] = (),
    ) -> None:
        self._processes = {each.image: each for each in processes}
        self._coroutines = list(coroutines)
        self._commands = [DefaultCommand(match, list(words)) for match, words in (commands or {}).items()]
        self._commands += _table()

    def process(self, image: str, namespace: str) -> ProcessImage | None:
        """How containers of this image run as child processes; None if they are simulated."""
        found = self._processes.get(image)
        return found if found is not None and namespace in found.namespaces else None

    def coroutine(self, container: Mapping[str, Any], namespace: str) -> Main | None:
        """What runs as a coroutine instead of this container, if anything does."""
        image, words = container.get("image"), (*(container.get("command") or ()), *(container.get("args") or ()))
        for each in self._coroutines:
            if image == each.image and namespace in each.namespaces and words == each.command:
                return each.main
        return None

    def argv(self, container: Mapping[str, Any]) -> list[str]:
        """The command line of a container that is simulated; empty means: run until stopped."""
        command, args = list(container.get("command") or []), list(container.get("args") or [])
        return command + args or self._default_command(container.get("image", ""))

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
