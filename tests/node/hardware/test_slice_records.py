"""The agent's records of its slices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.apis.placements import SlicePlacement
from apportion.node import atomic_files
from apportion.node.hardware.slice_records import SliceRecord, SliceRecords


def test_records_outlive_the_agent_and_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = SliceRecords(tmp_path)
    records.load()
    place = SlicePlacement("GPU-0", "1g.5gb", 3, 1)
    records.put(SliceRecord("c", "u", place))
    stored = {"claim": "c", "podUid": "u", "place": place._asdict(), "uuid": "", "making": False}
    assert json.loads((tmp_path / "slices.json").read_bytes()) == [stored]
    again = SliceRecords(tmp_path)
    again.load()
    assert again.get("c") == SliceRecord("c", "u", place)
    assert again.overlapping("other", SlicePlacement("GPU-0", "3g.20gb", 0, 4)) is not None
    assert again.overlapping("other", SlicePlacement("GPU-1", "3g.20gb", 0, 4)) is None
    assert again.overlapping("c", place) is None

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(atomic_files, "write", full)
    with pytest.raises(OSError, match="no space"):
        again.remove("c")
    assert again.get("c") is not None
