"""Every scenario file of this folder holds, one test per scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.lab.scenarios import files, running

ENTRIES = [entry for path in sorted(Path(__file__).parent.glob("*.yaml")) for entry in files.read(str(path))]


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_scenario(entry: files.ScenarioEntry) -> None:
    assert running.run_entry(entry).problems == ()


def test_every_scenario_has_a_name_of_its_own() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(names) == len(set(names)) > 100
