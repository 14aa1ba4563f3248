"""Files are whole at any moment."""

from __future__ import annotations

from pathlib import Path

from apportion.node import atomic_files


def test_files_are_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "file"
    atomic_files.write(target, b"one")
    atomic_files.write(target, b"two")
    assert target.read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
