"""From CDI names to what they add to a container."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pocketkube.kubelet.containers import cdi


def write(
    root: Path, file: str, *devices: dict[str, Any], kind: str = "apportion.io/slice", version: str = "0.6.0"
) -> None:
    folder = root / "var/run/cdi"
    folder.mkdir(parents=True, exist_ok=True)
    spec = {"cdiVersion": version, "kind": kind, "devices": list(devices)}
    (folder / file).write_text(json.dumps(spec))


def device(name: str, **env: str) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"env": [f"{key}={value}" for key, value in env.items()]}}


def test_devices_add_their_environment_and_the_last_value_wins(tmp_path: Path) -> None:
    write(tmp_path, "a.json", device("a", X="1", Y="1"))
    write(tmp_path, "b.json", device("b", X="2"))
    edits = cdi.resolve(tmp_path, ["apportion.io/slice=a", "apportion.io/slice=b"])
    assert edits.env == {"X": "2", "Y": "1"}


def test_a_name_that_nothing_or_two_files_define_cannot_be_resolved(tmp_path: Path) -> None:
    write(tmp_path, "a.json", device("a", X="1"))
    write(tmp_path, "b.json", device("a", X="2"))
    with pytest.raises(cdi.CdiError, match=r"unresolvable CDI devices apportion.io/slice=a"):
        cdi.resolve(tmp_path, ["apportion.io/slice=a"])
    with pytest.raises(cdi.CdiError, match="=none"):
        cdi.resolve(tmp_path, ["apportion.io/slice=none"])
    assert cdi.resolve(tmp_path, []).env == {}


def test_a_later_folder_wins_over_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path, "a.json", device("a", X="dynamic"))
    static = tmp_path / "etc/cdi"
    static.mkdir(parents=True)
    (static / "a.yaml").write_text(
        "{cdiVersion: 0.6.0, kind: apportion.io/slice, devices: [{name: a, containerEdits: {env: [X=static]}}]}"
    )
    assert cdi.resolve(tmp_path, ["apportion.io/slice=a"]).env == {"X": "dynamic"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"version": "1.1.0"}, "containerd 2.1 does not know it"),
        ({"kind": "apportion.io/1g.5gb"}, "a class starts with a letter"),
    ],
)
def test_files_that_a_runtime_would_not_accept_define_nothing(
    tmp_path: Path, changes: dict[str, str], why: str
) -> None:
    write(tmp_path, "a.json", device("a", X="1"), **changes)  # type: ignore[arg-type]
    with pytest.raises(cdi.CdiError):
        cdi.resolve(tmp_path, [f"{changes.get('kind', 'apportion.io/slice')}=a"])
    (tmp_path / "var/run/cdi/junk.json").write_text("{")
    (tmp_path / "var/run/cdi/.half.json").write_text("{}")


def test_mounts_of_a_device_are_named_with_both_paths(tmp_path: Path) -> None:
    edits = {"mounts": [{"hostPath": "/opt/tool", "containerPath": "/usr/bin/tool"}]}
    write(tmp_path, "a.json", {"name": "a", "containerEdits": edits})
    assert cdi.resolve(tmp_path, ["apportion.io/slice=a"]).mounts == [("/opt/tool", "/usr/bin/tool")]


@pytest.mark.parametrize("text", ["[" * 30_000, '{"a": "' + "x" * 1_100_000 + '"}'])
def test_t01_a_file_that_would_take_long_to_read_is_none(tmp_path: Path, text: str) -> None:
    write(tmp_path, "a.json", device("a", X="1"))
    for name in ("b.json", "c.yaml"):
        (tmp_path / "var/run/cdi" / name).write_text(text)
    assert cdi.resolve(tmp_path, ["apportion.io/slice=a"]).env == {"X": "1"}
