"""A sandbox from the test run's side: start programs inside it, look into their logs, be sure that all of it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.environments import binaries
from tests.environments.supervisor import child_of


class Sandbox:
    """Namespaces with a supervisor. `data` goes with the sandbox, `logs` stay."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.logs = folder / "logs"
        self.data.mkdir(parents=True)
        self.logs.mkdir(parents=True)
        self._supervisor = subprocess.Popen(
            [sys.executable, "-m", "tests.environments.supervisor", str(self.data)],
            cwd=binaries.ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.logs / "supervisor.log").open("wb"),
        )
        assert self._supervisor.stdout is not None
        line = self._supervisor.stdout.readline()
        if not line:
            raise RuntimeError(f"no sandbox: {(self.logs / 'supervisor.log').read_text().strip()}")
        facts = json.loads(line)
        self.first: int = facts["first"]
        self.cgroup: str = facts["cgroup"]

    @property
    def supervisor(self) -> int:
        return self._supervisor.pid

    @property
    def enter(self) -> list[str]:
        """Command prefix: run this in the sandbox's network, on the machine's own files and processes."""
        return ["nsenter", f"--net=/proc/{self.first}/ns/net", "--"]

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        mounts_of: int | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Daemon:
        """Starts a program wholly inside the sandbox; `mounts_of`: in the mount namespace of that process instead."""
        inside = ["nsenter", "--target", str(mounts_of or self.first), "--mount", "--net", "--pid", "--ipc", "--"]
        return Daemon(name, [*inside, *map(str, command)], self.logs / f"{name}.log", env=env, pass_fds=pass_fds)

    def close(self) -> None:
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.close()
        self._supervisor.wait(timeout=60)


class Daemon:
    """A long-running program in a sandbox."""

    def __init__(
        self, name: str, command: list[str], log: Path, *, env: Mapping[str, str] | None, pass_fds: Sequence[int]
    ) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._outer = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment() | dict(env or {}),
                pass_fds=pass_fds,
                start_new_session=True,
            )
        try:
            self.pid = child_of(self._outer.pid)
        except RuntimeError as error:
            raise RuntimeError(f"{name} did not start: {self.last_lines()}") from error

    @property
    def alive(self) -> bool:
        return self._outer.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)
            if number == signal.SIGCONT:
                # nsenter stops itself along with the program that it runs.
                os.kill(self._outer.pid, number)

    def kill(self) -> None:
        """SIGKILL, as in a crash."""
        self.signal(signal.SIGKILL)
        self._outer.wait(timeout=10)

    def stop(self, *, timeout: float = 10.0) -> None:
        self.signal(signal.SIGTERM)
        try:
            self._outer.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def expect_alive(self) -> None:
        if not self.alive:
            raise RuntimeError(f"{self.name} ended with code {self._outer.returncode}: {self.last_lines()}")

    def last_lines(self, count: int = 5) -> str:
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-count:])


def run(sandbox: Sandbox, command: Sequence[str | Path], *, mounts_of: int | None = None, timeout: float = 60) -> str:
    """Runs a short command inside the sandbox and gives back what it printed."""
    inside = ["nsenter", "--target", str(mounts_of or sandbox.first), "--mount", "--net", "--pid", "--ipc", "--"]
    done = subprocess.run(
        [*inside, *map(str, command)], capture_output=True, text=True, timeout=timeout, check=False, env=_environment()
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _environment() -> dict[str, str]:
    """This process's own, without proxies (every address is local) and without a kubeconfig of the user."""
    unwanted = {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "kubeconfig"}
    return {key: value for key, value in os.environ.items() if key.lower() not in unwanted}
