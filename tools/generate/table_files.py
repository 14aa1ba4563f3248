"""What the generators of tables share: their options, and a table written or compared, one line a type."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path


def options(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    parser.add_argument("--modules", type=Path, default=Path.home() / "go/pkg/mod", help="the Go module cache")
    return parser.parse_args()


def without_source(source: Path, *, check: bool) -> int:
    """The exit code where the Go modules are not: nothing to compare with is no fault, nothing to write from is."""
    print(f"not {'checked' if check else 'written'}: there is no {source}; `make real` gets it")
    return 0 if check else 1


def settle(target: Path, types: Mapping[str, object], *, check: bool) -> int:
    """Write the table if it differs, or say so; the exit code."""
    lines = [f"{json.dumps(name)}: {json.dumps(entry, sort_keys=True)}" for name, entry in sorted(types.items())]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if target.exists() and target.read_text() == text:
        return 0
    if not check:
        target.write_text(text)
    print(f"{'differs' if check else 'wrote'}: {target.name}, {len(types)} types")
    return 1 if check else 0
