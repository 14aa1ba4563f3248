"""The agent's records of its slices."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.node import atomic_files
from apportion.node.hardware.partitioner import Place
from apportion.node.hardware.slice_records import SliceRecord, SliceRecords


def test_records_outlive_the_agent_and_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = SliceRecords(tmp_path)
    records.load()
    place = Place("GPU-0", "1g.5gb", 3, 1)
    records.put(SliceRecord("c", "u", place))
    again = SliceRecords(tmp_path)
    again.load()
    assert again.get("c") == SliceRecord("c", "u", place)
    assert again.overlapping("other", Place("GPU-0", "3g.20gb", 0, 4)) is not None
    assert again.overlapping("other", Place("GPU-1", "3g.20gb", 0, 4)) is None
    assert again.overlapping("c", place) is None

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(atomic_files, "write", full)
    with pytest.raises(OSError, match="no space"):
        again.remove("c")
    assert again.get("c") is not None
