"""The example of the README runs as it is written there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "src/pocketkube/README.md"


def example() -> str:
    found = re.search(r"## Use in a test\n+```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_passes_as_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(example())
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


def test_a_cluster_takes_ten_lines() -> None:
    lines = [line for line in example().splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 10
