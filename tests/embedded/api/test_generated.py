"""The table of merge rules is what its generator makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULE = Path.home() / "go/pkg/mod/k8s.io/kubernetes@v1.34.4"


@pytest.mark.real
@pytest.mark.skipif(not MODULE.exists(), reason="the Kubernetes module is not in the Go module cache: make real")
def test_merge_rules_are_up_to_date() -> None:
    script = ROOT / "tools/generate/merge_rules.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
