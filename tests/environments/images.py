"""Image archives for the nodes, made by `tools/image/build.py` without Docker and kept in the cache."""

from __future__ import annotations

import fcntl
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.environments.binaries import ROOT

WORKLOAD = "apportion.io/test/workload:1"


def workload() -> Path:
    """busybox, under the names that example manifests use."""
    return _archive("workload")


def apportion() -> Path:
    """Our own image, from this work tree."""
    return _archive("apportion")


@functools.cache
def _archive(name: str) -> Path:
    with (Path(tempfile.gettempdir()) / f"apportion-image-{os.getuid()}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # what another run makes right now need not be made again
        made = subprocess.run(
            [sys.executable, str(ROOT / "tools/image/build.py"), name], stdout=subprocess.PIPE, text=True, check=True
        )
    return Path(made.stdout.strip().splitlines()[-1])
