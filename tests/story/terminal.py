"""A terminal in a folder: commands as a document prints them, with a home of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from tests.environments import binaries
from tests.environments.waiting import until

EXAMPLE = binaries.ROOT / "examples" / "mig-fallback"


class Terminal:
    """With `kubeconfig` its kubectl talks to that cluster, in `namespace`."""

    def __init__(self, folder: Path, home: Path, *, kubeconfig: Path | None = None, namespace: str = "default") -> None:
        self.folder = folder
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        programs = [folder / "bin", Path(sys.executable).parent, binaries.path("kubectl").parent]
        kept = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "XDG_STATE_HOME")}
        self._environment = kept | {
            "HOME": str(home),
            "KUBERC": "off",
            "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
        }
        if kubeconfig is not None:
            self._environment["KUBECONFIG"] = shutil.copy(kubeconfig, home / "kubeconfig")
            self.run(f"kubectl config set-context --current --namespace={namespace}")

    def run(self, commands: str, *, timeout: float = 240, code: int = 0) -> str:
        """What the commands print, both streams together; the first one that fails ends them."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == code, f"exit code {done.returncode} of:\n{commands}\n{done.stdout}"
        return done.stdout

    def follow(self, command: str, wanted: str, *, within: float = 90) -> str:
        """Run a command that never ends until its output matches; then end it."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        seen: list[str] = []

        def collect() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                seen.append(line)  # noqa: PERF402  each line is looked at as soon as it is there

        reader = threading.Thread(target=collect, daemon=True)
        reader.start()
        try:
            until(
                lambda: re.search(wanted, "".join(seen), re.DOTALL) is not None,
                f"`{command}` prints {wanted!r}; so far: {''.join(seen)}",
                within=within,
            )
        finally:
            process.terminate()
            process.wait(timeout=10)
            reader.join(timeout=10)
        return "".join(seen)
