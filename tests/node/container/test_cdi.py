"""CDI files: their names, and whose they are."""

from __future__ import annotations

import json
from pathlib import Path

from apportion.node.container import cdi
from apportion.node.container.cdi import CdiFolder, Owner


def test_s07_a_device_name_depends_on_resource_and_ids_alone() -> None:
    name = cdi.device_name("mig.das.com/1g.5gb", ["b", "a"])
    assert name == cdi.device_name("mig.das.com/1g.5gb", ["a", "b"])
    assert name != cdi.device_name("mig.das.com/1g.5gb", ["a"])
    assert name != cdi.device_name("mig.das.com/2g.10gb", ["a", "b"])
    assert cdi.qualified(name) == f"apportion.io/slice={name}"


def test_s08_a_cdi_file_is_removed_only_for_the_pod_it_names(tmp_path: Path) -> None:
    folder = CdiFolder(tmp_path)
    folder.write("x", Owner("old", frozenset({"main"})), {"A": "1"})
    folder.write("x", Owner("new", frozenset({"main"})), {"A": "2"})
    folder.remove("x", "old")
    (path,) = tmp_path.iterdir()
    spec = json.loads(path.read_text())
    assert spec["cdiVersion"] == "0.6.0"
    assert spec["kind"] == "apportion.io/slice"
    assert spec["devices"][0]["containerEdits"] == {"env": ["A=2"]}
    assert folder.of_pod("new").keys() == {"x"}
    again = CdiFolder(tmp_path)
    again.load()
    assert again.of_pod("new") == folder.of_pod("new")
    folder.remove("x", "new")
    assert list(tmp_path.iterdir()) == []
