"""The example of the README runs as it is written there."""

from __future__ import annotations

import os
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
    """In an empty folder, by the command of the README, and without the plug-ins that are installed here."""
    (tmp_path / "test_hello.py").write_text(example())
    assert "`pytest test_hello.py`" in README.read_text()
    command = [sys.executable, "-m", "pytest", "test_hello.py"]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


def test_a_cluster_takes_ten_lines() -> None:
    lines = [line for line in example().splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 10
