"""What every cluster gives to a test, whichever it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.environments import binaries
from tests.environments.api import Api

if TYPE_CHECKING:
    from apportion.cluster.client import Client


class Cluster:
    """A kubeconfig and the ways to use it."""

    kind = "unknown"

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.api = Api(kubeconfig)

    def kubectl(
        self,
        *args: str,
        input: str | None = None,  # noqa: A002  named as in subprocess.run
        check: bool = True,
        timeout: float = 120,
    ) -> str:
        """What `kubectl args...` prints; with `check=False` its error text too, instead of an exception."""
        home = self.kubeconfig.parent
        environment = os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(home / "kubectl-cache"),
            "KUBERC": "off",
            "HOME": str(home),
        }
        done = subprocess.run(
            [str(binaries.path("kubectl")), *args],
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=environment,
        )
        if done.returncode and check:
            raise AssertionError(f"kubectl {' '.join(args)}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def client(self) -> Client:
        """An async context manager: the client that the planes use."""
        from apportion.cluster.client import Client

        return Client.from_kubeconfig(self.kubeconfig)
