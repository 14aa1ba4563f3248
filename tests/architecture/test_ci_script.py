"""The script of CI gives one failed test a second run and names it; everything else that fails, fails the run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = """
test:
\t.venv/bin/python -m pytest -q -n 1 -p no:randomly
develop check demo real rules:
\t@echo made $@
"""
STEADY = "def test_steady(): pass\n"
FLAKY = """
from pathlib import Path

def test_{name}():
    seen = Path("{name}.seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
BROKEN = "def test_broken(): assert False\n"
NOT_COLLECTED = FLAKY.format(name="inside") + "\ntest_inside()\n"
CRASHING = """
import os
from pathlib import Path

def test_crashing():
    seen = Path("crashing.seen")
    if not seen.exists():
        seen.touch()
        os._exit(1)
"""


def ci(folder: Path, *, makefile: str = MAKEFILE, **files: str) -> tuple[int, list[str]]:
    """Exit code and output of the script in a repository with these test files."""
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    (folder / "Makefile").write_text(makefile)
    (folder / "pytest.ini").write_text("[pytest]\n")
    interpreter = folder / ".venv/bin/python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    interpreter.chmod(0o755)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MAKE"))}
    ran = subprocess.run(
        [folder / ".ci/run"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return ran.returncode, ran.stdout.splitlines()


def test_steady_tests_pass_and_none_is_named(tmp_path: Path) -> None:
    code, output = ci(tmp_path, steady=STEADY)
    assert code == 0
    assert not any("unsteady" in line for line in output)


def test_one_flaky_test_runs_again_and_is_named_in_the_last_lines(tmp_path: Path) -> None:
    code, output = ci(tmp_path, steady=STEADY, one=FLAKY.format(name="one"))
    assert code == 0
    assert output[-3:-1] == ["== unsteady, passed only in a second run:", "test_one.py::test_one"]


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"one": FLAKY.format(name="one"), "two": FLAKY.format(name="two")}, id="two flaky tests"),
        pytest.param({"broken": BROKEN}, id="a broken test"),
        pytest.param({"loading": NOT_COLLECTED}, id="a file that is collected only the second time"),
        pytest.param({"crashing": CRASHING}, id="a test that ends its process the first time"),
    ],
)
def test_anything_else_fails_the_run(tmp_path: Path, files: dict[str, str]) -> None:
    code, output = ci(tmp_path, steady=STEADY, **files)
    assert code != 0
    assert "made rules" not in output
    assert not any("unsteady" in line for line in output)


def test_failures_of_an_earlier_run_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    """`make test` fails here before pytest begins."""
    cache = tmp_path / ".pytest_cache/v/cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text('{"test_steady.py::test_steady": true}')
    code, output = ci(tmp_path, makefile=MAKEFILE.replace("test:", "test:\n\t@false"), steady=STEADY)
    assert code != 0
    assert "made rules" not in output
