"""`make real`: what it says and does, without building anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.environments import binaries
from tests.environments.fixtures import require

MODULES = sorted(path.parent for path in (binaries.ROOT / "tools" / "real").glob("*/go.mod"))


def build(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(binaries.BUILD), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_an_empty_cache_has_nothing_and_says_how_to_get_it(tmp_path: Path) -> None:
    empty = {"XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": ""}
    listed = json.loads(build("--list", "-o", "json", **empty).stdout)
    assert {"kubectl", "etcd", "kube-apiserver", "kubelet", "containerd", "runc", "helm", "kueue"} <= set(listed)
    assert set(listed.values()) == {None}
    asked = build("--path", "helm", **empty)
    assert asked.returncode == 1
    assert re.fullmatch(r"real: helm is not built; run .*build\.py helm`\n", asked.stderr)


def test_binaries_of_kubebuilder_are_used(tmp_path: Path) -> None:
    program = tmp_path / "kube-apiserver"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    asked = build("--path", "kube-apiserver", KUBEBUILDER_ASSETS=str(tmp_path))
    assert asked.stdout == f"{program}\n"


@pytest.mark.parametrize(("name", "tool"), [("runc", "apt-get"), ("nonsense", "choose from kubectl")])
def test_what_is_missing_is_said_in_one_line(tmp_path: Path, name: str, tool: str) -> None:
    asked = build(name, XDG_CACHE_HOME=str(tmp_path), PATH=str(tmp_path))
    assert asked.returncode == 2
    last = asked.stderr.splitlines()[-1]
    assert last.startswith("real: ")
    assert tool in last
    assert "Traceback" not in asked.stderr


@pytest.mark.real
def test_a_second_run_takes_no_time() -> None:
    require(binaries.CONTROL_PLANE + binaries.NODE)
    began = time.monotonic()
    asked = build()
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "", "")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_modules_are_pinned_and_demand_no_particular_toolchain(module: Path) -> None:
    text = (module / "go.mod").read_text()
    assert "toolchain" not in text
    assert re.search(r"^go 1\.2[0-6]\.0$", text, re.MULTILINE)
    assert (module / "go.sum").stat().st_size > 0


def test_tests_are_skipped_with_the_remedy_or_fail_where_the_real_cluster_is_required(tmp_path: Path) -> None:
    def run(**environment: str) -> str:
        one = "tests/real/test_real_cluster.py::test_one_kubeconfig_serves_inside_the_sandbox_too"
        pytest_run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "t")]
        empty = {"XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": "", "APPORTION_REQUIRE_REAL": ""}
        done = subprocess.run(
            [*pytest_run, one],
            cwd=binaries.ROOT,
            capture_output=True,
            text=True,
            env=os.environ | empty | environment,
            check=False,
        )
        return done.stdout

    skipped = run()
    assert "1 skipped" in skipped
    assert "1 tests need kubectl or the real cluster and did not run: run `make real`" in skipped
    failed = run(APPORTION_REQUIRE_REAL="1")
    assert "1 error" in failed
    assert "run `make real`" in failed


def test_without_root_the_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    require(binaries.CONTROL_PLANE)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "run the tests as root" in str(binaries.obstacles(binaries.CONTROL_PLANE))
