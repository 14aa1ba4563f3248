"""The stand-in for libnvidia-ml.so.1, compiled for a test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NAME = "libnvidia-ml.so.1"
SOURCE = Path(__file__).parent / "stub.c"


def build(folder: Path) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: install gcc to test what asks NVML")
    target = folder / NAME
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", target, SOURCE], check=True)
    return target
