"""The annotation `run.ai/mig.config`: how the GPUs of a node are to be cut, in the four dialects people write.

    version: v1
    mig-configs:
      selected:
        - devices: [0, 1]        # or `all`, or one number
          mig-enabled: true
          mig-devices: ...

`mig-devices` is one of

    [{name: 1g.10gb, position: 0, size: 1}, ...]   a list of places
    {0: 2g.20gb, 2: 2g.20gb}                       position to profile
    [2g.20gb, 1g.10gb]                             names alone
    {1g.10gb: 7}                                   profile to count
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from apportion.apis import names, profiles
from apportion.apis.errors import InputError

ALL = "all"
SELECTED = "selected"
PENDING, SUCCESS, FAILED = "pending", "success", "failed"
LARGEST_COUNT = 64


class MigConfigError(InputError):
    code = "InvalidMigConfig"


@dataclass(frozen=True)
class LayoutEntry:
    """One slice of a layout; without a position any placement is valid."""

    profile: str
    position: int | None = None


@dataclass(frozen=True)
class Selection:
    """What some GPUs are to be: cut like this, or whole. `devices` None means all of them."""

    devices: tuple[int, ...] | None
    enabled: bool
    layout: tuple[LayoutEntry, ...] = ()


@dataclass(frozen=True)
class MigConfig:
    selections: tuple[Selection, ...]

    def of(self, index: int) -> Selection | None:
        """What is written for one GPU; of several entries the last one holds."""
        found = None
        for selection in self.selections:
            if selection.devices is None or index in selection.devices:
                found = selection
        return found


def parse(text: str) -> MigConfig:
    """Read the annotation; raises MigConfigError with field, value and fix."""
    try:
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, IndexError, RecursionError) as error:  # its constructors raise all of these
        problem = getattr(error, "problem", None) or "is invalid"
        raise MigConfigError(names.MIG_CONFIG, text, f"is not YAML ({problem})") from None
    return MigConfig(tuple(_selection(entry, at) for at, entry in _entries(raw)))


def read_devices(raw: Any, field: str) -> tuple[LayoutEntry, ...]:
    """`mig-devices` in any of its dialects."""
    if raw is None:
        return ()
    if isinstance(raw, Mapping):
        return tuple(entry for key, value in raw.items() for entry in _pair(key, value, f"{field}[{key}]"))
    if isinstance(raw, Sequence) and not isinstance(raw, str):
        return tuple(_listed(entry, f"{field}[{index}]") for index, entry in enumerate(raw))
    raise MigConfigError(field, raw, "use a list of profiles, or a map of profile to count")


def render(layouts: Mapping[int, Sequence[tuple[str, int, int]]]) -> str:
    """The annotation for GPUs, by number, cut like this, each slice as (profile, start, size)."""
    selected = [
        {
            "devices": [index],
            "mig-enabled": True,
            "mig-devices": [{"name": name, "position": start, "size": size} for name, start, size in cuts],
        }
        for index, cuts in layouts.items()
    ]
    text: str = yaml.safe_dump({"version": "v1", "mig-configs": {SELECTED: selected}}, sort_keys=False)
    return text


def _entries(raw: Any) -> Iterable[tuple[str, Any]]:
    field = names.MIG_CONFIG
    if isinstance(raw, Mapping):
        field = f"{field}: mig-configs"
        raw = raw.get("mig-configs", raw)
    if isinstance(raw, Mapping):
        if SELECTED not in raw and len(raw) != 1:
            raise MigConfigError(field, sorted(map(str, raw)), f"name the configuration that applies `{SELECTED}`")
        name = SELECTED if SELECTED in raw else next(iter(raw))
        field, raw = f"{field}.{name}", raw[name]
    if not isinstance(raw, list):
        raise MigConfigError(field, raw, "use a list of entries with devices and mig-devices")
    return [(f"{field}[{index}]", entry) for index, entry in enumerate(raw)]


def _selection(raw: Any, field: str) -> Selection:
    if not isinstance(raw, Mapping):
        raise MigConfigError(field, raw, "use an entry with devices and mig-devices")
    enabled = raw.get("mig-enabled", True)
    if not isinstance(enabled, bool):
        raise MigConfigError(f"{field}.mig-enabled", enabled, "use true or false")
    layout = read_devices(raw.get("mig-devices"), f"{field}.mig-devices")
    if layout and not enabled:
        raise MigConfigError(f"{field}.mig-enabled", enabled, "a GPU with slices needs true")
    return Selection(_devices(raw.get("devices", ALL), f"{field}.devices"), enabled, layout)


def _devices(raw: Any, field: str) -> tuple[int, ...] | None:
    if raw == ALL:
        return None
    found = raw if isinstance(raw, list) else [raw]
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in found):
        raise MigConfigError(field, raw, "use `all` or a list of GPU numbers, such as [0, 1]")
    return tuple(found)


def _pair(key: Any, value: Any, field: str) -> list[LayoutEntry]:
    """An entry of a map: `0: 1g.10gb` or `1g.10gb: 7`."""
    if isinstance(value, str) and not _digits(value):
        return [LayoutEntry(_profile(value, field), _number(key, field))]
    count = _number(value, field)
    if count > LARGEST_COUNT:
        raise MigConfigError(field, value, f"is more than {LARGEST_COUNT}, the maximum number of slices")
    return [LayoutEntry(_profile(key, field))] * count


def _listed(entry: Any, field: str) -> LayoutEntry:
    if not isinstance(entry, Mapping):
        return LayoutEntry(_profile(entry, field))
    position = entry.get("position")
    return LayoutEntry(
        _profile(entry.get("name"), f"{field}.name"),
        None if position is None else _number(position, f"{field}.position"),
    )


def _profile(value: Any, field: str) -> str:
    name = profiles.from_wire(value.removeprefix(names.NVIDIA_MIG_PREFIX)) if isinstance(value, str) else ""
    if not profiles.well_formed(name):
        raise MigConfigError(field, value, "use a MIG profile, such as 1g.10gb")
    return name


def _number(value: Any, field: str) -> int:
    if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, str) and _digits(value))):
        raise MigConfigError(field, value, "use a number of 0 or more")
    number = int(value)
    if number < 0:
        raise MigConfigError(field, value, "use a number of 0 or more")
    return number


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
