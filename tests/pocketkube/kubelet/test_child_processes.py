"""Containers that run as child processes: which commands, which variables, which files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pocketkube.kubelet.container_files import ContainerFiles, Mount
from pocketkube.kubelet.containers import child_processes
from pocketkube.kubelet.containers.child_processes import NotAllowedError
from pocketkube.kubelet.containers.images import Images, ProcessImage

IMAGE = ProcessImage(
    image="registry.example/team/tool:1",
    namespaces=frozenset({"tools"}),
    program="tool",
    command=("/bin/real",),
    subcommands={"serve": {"--state": "/var/state"}},
    environment=frozenset({"POD_IP"}),
    environment_prefix="TOOL_",
    service_account_env="ACCOUNT",
)


@pytest.fixture
def files(tmp_path: Path) -> ContainerFiles:
    (tmp_path / "volume").mkdir()
    return ContainerFiles(tmp_path / "root", {"/data": Mount(tmp_path / "volume")})


def command_line(files: ContainerFiles, *command: str, **container: Any) -> list[str]:
    spec = {"name": "c", "command": list(command), **container}
    return child_processes.command_line(IMAGE, spec, {"X": "/data/x"}, files)


@pytest.mark.parametrize(
    "image",
    [
        "evil.example/team/tool:1",
        "tool",
        "tool:1",
        "registry.example/team/tool",
        "registry.example/team/tool:1@sha256:0",
    ],
)
def test_t01_only_the_whole_reference_is_the_image(image: str) -> None:
    assert Images([IMAGE]).process(image, "tools") is None


def test_t01_the_image_is_simulated_in_other_namespaces() -> None:
    images = Images([IMAGE])
    assert images.process(IMAGE.image, "tools") is IMAGE
    assert images.process(IMAGE.image, "default") is None


def test_paths_are_those_of_the_container(files: ContainerFiles, tmp_path: Path) -> None:
    volume, root = tmp_path / "volume", tmp_path / "root"
    found = command_line(files, "tool", "serve", "--log=/data/log", "/etc/passwd", "--other", "$(X)", "relative")
    expected = [f"--state={root}/var/state", f"--log={volume}/log", f"{root}/etc/passwd", "--other", f"{volume}/x"]
    assert found == ["/bin/real", "serve", *expected, "relative"]
    assert command_line(files, "tool", args=["serve", "--state=/data"])[2:] == [f"--state={volume}"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["sh", "-c", "id"], 'exec: "sh": executable file not found'),
        (["tool", "down"], 'command "down" of image .* is not run in a cluster: use one of serve'),
        (["tool", "--version", "serve"], 'command "--version"'),
        (["tool"], "command none"),
        (["tool", "serve", "--log=../../x"], "must not contain"),
        (["tool", "serve", ".."], "must not contain"),
        (["tool", "serve", "-l/etc/x"], "must be separated from its option by ="),
    ],
)
def test_t01_nothing_else_is_run(files: ContainerFiles, command: list[str], message: str) -> None:
    with pytest.raises(NotAllowedError, match=message):
        command_line(files, *command)


def test_t01_only_listed_variables_are_handed_on(files: ContainerFiles, tmp_path: Path) -> None:
    hostile = dict.fromkeys(
        ("PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "PATH", "HOME", "XDG_STATE_HOME", "SSL_CERT_FILE", "KUBECONFIG",
         "HTTPS_PROXY", "ACCOUNT", "KUBERNETES_SERVICE_HOST"),
        "/data",
    )  # fmt: skip
    found = child_processes.variables(IMAGE, {**hostile, "POD_IP": "1", "TOOL_LOG": "/data/l"}, files)
    account = str(tmp_path / "root" / child_processes.SERVICE_ACCOUNT_PATH.lstrip("/"))
    assert found == {"POD_IP": "1", "TOOL_LOG": str(tmp_path / "volume/l"), "ACCOUNT": account}
