"""From a container of a process image to the command line and the environment of its child process.

The process sees the machine's file system, the container does not: every path in its words and variables becomes one
of the container's own files, also the paths that it would take if an option is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pocketkube.kubelet import confined_paths
from pocketkube.kubelet.container_files import ContainerFiles
from pocketkube.kubelet.containers import environment
from pocketkube.kubelet.containers.images import ProcessImage

SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


class NotAllowedError(Exception):
    """A container that would do more than its image is for."""


def command_line(
    image: ProcessImage, container: Mapping[str, Any], env: Mapping[str, str], files: ContainerFiles
) -> list[str]:
    words = [environment.expand(word, env) for word in _words(image, container)]
    if not words or words[0] not in image.subcommands:
        given = f'"{words[0]}"' if words else "none"
        allowed = ", ".join(sorted(image.subcommands))
        raise NotAllowedError(f"command {given} of image {image.image} is not run in a cluster: use one of {allowed}")
    options = image.subcommands[words[0]]
    missing = [f"{name}={path}" for name, path in options.items() if not _has(words, name)]
    return [*image.command, words[0], *(_inside(word, files) for word in (*missing, *words[1:]))]


def variables(image: ProcessImage, env: Mapping[str, str], files: ContainerFiles) -> dict[str, str]:
    """The variables of the pod that the process gets."""
    taken = {name: _inside(value, files) for name, value in env.items() if image.takes(name)}
    if image.service_account_env:
        taken[image.service_account_env] = str(files.path(SERVICE_ACCOUNT_PATH))
    return taken


def _words(image: ProcessImage, container: Mapping[str, Any]) -> list[str]:
    command, args = list(container.get("command") or [image.program]), list(container.get("args") or [])
    if command[0] != image.program:
        text = f'exec: "{command[0]}": executable file not found in $PATH'
        raise NotAllowedError(f"failed to create containerd task: failed to start container: {text}")
    return command[1:] + args


def _has(words: Sequence[str], option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in words)


def _inside(text: str, files: ContainerFiles) -> str:
    """A path of the container as this machine sees it, also behind `--flag=`; any other text as it is."""
    flag, equals, value = text.partition("=") if text.startswith("-") else ("", "", text)
    if equals:
        return f"{flag}={_inside_value(value, files)}"
    if flag and "/" in flag:
        raise NotAllowedError(f'"{text}": a path must be separated from its option by =')
    return flag or _inside_value(value, files)


def _inside_value(value: str, files: ContainerFiles) -> str:
    if confined_paths.has_backstep(value):
        raise NotAllowedError(f"\"{value}\" must not contain '..'")
    return str(files.path(value)) if value.startswith("/") else value
