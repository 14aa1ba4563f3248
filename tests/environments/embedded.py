"""The embedded cluster for tests: `apportion up` as a child process that cannot outlive the test run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.environments import audit
from tests.environments.cluster import Cluster
from tests.environments.waiting import until


class Embedded(Cluster):
    """Bare by default: the API and its controllers, no planes and no nodes."""

    kind = "embedded"

    def __init__(self, folder: Path, *options: str) -> None:
        kubeconfig = folder / "kubeconfig"
        self.log = folder / "cluster.log"
        command = [sys.executable, "-m", "apportion", "up", "--name", folder.name, "--kubeconfig", str(kubeconfig)]
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "--", *command, *(options or ("--bare", "--nodes", "0"))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"XDG_STATE_HOME": str(folder / "state")},
            )
        try:
            until(lambda: self._has_written(kubeconfig), "the kubeconfig of the embedded cluster", within=60)
            super().__init__(kubeconfig)
            until(lambda: self.api.exists("/api/v1/namespaces/default"), "the embedded API answers")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def forbidden(self) -> list[str]:
        """Requests of our components that a role or a policy refused."""
        return audit.refused_lines(self.log.read_text())

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _has_written(self, kubeconfig: Path) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"`apportion up` ended: {self.log.read_text().strip()}")
        return kubeconfig.exists() and kubeconfig.stat().st_size > 0
