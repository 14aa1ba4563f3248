"""Where a cluster cannot run, one line says what is in the way and what to do."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import binaries, cgroups
from tests.environments.fixtures import require

ASK = "from tests.environments import binaries; print(binaries.obstacles(binaries.CONTROL_PLANE + binaries.NODE))"


@pytest.fixture
def _binaries() -> None:
    require(binaries.CONTROL_PLANE + binaries.NODE)


@pytest.mark.real
@pytest.mark.usefixtures("_binaries")
def test_a_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "nsenter" else which(tool))
    assert binaries.obstacles(binaries.CONTROL_PLANE) == "`nsenter` missing: install util-linux and iproute2"


@pytest.mark.real
@pytest.mark.usefixtures("_binaries")
def test_a_missing_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_built", lambda: {"etcd": None})
    assert binaries.obstacles(("etcd", "kubelet")) == "etcd, kubelet missing: run `make real`"


@pytest.mark.real
@pytest.mark.usefixtures("_binaries")
def test_no_cgroups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cgroups, "MOUNT", tmp_path)
    line = f"no cgroups under {tmp_path}: mount them (a privileged container has them)"
    assert binaries.obstacles(binaries.NODE) == line
    assert binaries.obstacles(binaries.CONTROL_PLANE) is None, "a control plane needs none"


@pytest.mark.real
@pytest.mark.usefixtures("_binaries")
def test_cgroups_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: not Path(path).is_relative_to(cgroups.MOUNT) and access(path, mode)
    )
    assert "is read-only: use a privileged container or a VM" in str(binaries.obstacles(binaries.NODE))


@pytest.mark.real
@pytest.mark.usefixtures("_binaries")
def test_root_without_the_needed_capabilities() -> None:
    powerless = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--", sys.executable, "-c", ASK]
    done = subprocess.run(powerless, cwd=binaries.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("this machine allows no namespaces with a bridge (unshare")
    assert done.stdout.endswith("use a privileged container or a VM\n")
    assert done.stdout.count("\n") == 1


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = ["up", "--bare", "--nodes", "0", "--name", tmp_path.name, "--port", str(port)]
        done = subprocess.run(
            [sys.executable, "-m", "apportion", *command, "--kubeconfig", str(tmp_path / "kubeconfig")],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"XDG_STATE_HOME": str(tmp_path)},
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.endswith(f"port {port} is in use: specify another --port, or omit it to use a free port\n")
    assert done.stderr.count("\n") == 1
