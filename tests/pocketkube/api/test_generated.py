"""The tables of facts are what their generators make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULE = Path.home() / "go/pkg/mod/k8s.io/kubernetes@v1.34.4"


@pytest.mark.real
@pytest.mark.skipif(not MODULE.exists(), reason="the Kubernetes module is not in the Go module cache: make real")
@pytest.mark.parametrize("name", ["merge_rules", "fields", "internal_pod_form"])
def test_tables_are_up_to_date(name: str) -> None:
    script = ROOT / f"tools/generate/{name}.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
