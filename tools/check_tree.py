"""What no linter knows: sizes of files and folders, addresses in lock files, package data that a script generates."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST_FILE = 500
MOST_FILES = 25
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$")
GENERATORS = ("tools/generate/protos.py", "tools/generate/crds.py")


def main() -> int:
    problems = [*too_long(), *too_full(), *addresses_in_locks(), *stale_generated_files()]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def too_long() -> list[str]:
    found = []
    for path in tracked("*.py"):
        lines = len(path.read_text().splitlines())
        if lines > LONGEST_FILE and not GENERATED.search(path.name):
            found.append(f"{path.relative_to(ROOT)}: {lines} lines, at most {LONGEST_FILE}: split it by job")
    return found


def too_full() -> list[str]:
    counts = Counter(path.parent for path in tracked("*.py") if path.name != "__init__.py")
    return [
        f"{folder.relative_to(ROOT)}: {count} modules, at most {MOST_FILES}: make folders of what belongs together"
        for folder, count in sorted(counts.items())
        if count > MOST_FILES
    ]


def addresses_in_locks() -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: carries an address; lock with --no-emit-index-url"
        for path in sorted((ROOT / "requirements").glob("*.txt"))
        if re.search(r"https?://", path.read_text())
    ]


def stale_generated_files() -> list[str]:
    found = []
    for generator in GENERATORS:
        ran = subprocess.run(
            [sys.executable, str(ROOT / generator), "--check"], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            found.append(f"{generator}: {ran.stdout}{ran.stderr}".strip())
    return found


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists()]


if __name__ == "__main__":
    sys.exit(main())
