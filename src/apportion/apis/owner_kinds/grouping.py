"""The group of a pod, from its owners. Pure functions of the owners' objects and the table.

The owners of a pod are a chain: CronJob, Job. The topmost one that the table knows decides; kinds that the table does
not know, and kinds whose row says `child`, leave it to the next one. Queue, priority class and preemptibility are
those of the topmost owner that states them. A pod whose owners form no group is a group of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apportion.apis import names
from apportion.apis.owner_kinds import rows
from apportion.apis.owner_kinds.rows import Amount, OwnerKind, OwnerKindError, SubgroupSource
from apportion.apis.owner_kinds.table import OwnerKinds
from apportion.apis.priorities import NON_PREEMPTIBLE, PREEMPTIBLE, TRAIN

Json = Mapping[str, Any]

_LONGEST_NAME, _LONGEST_OBJECT_NAME = 63, 253
_UNNAMED = "unnamed"
_NOT_IN_NAME = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True)
class OwnerSettings:
    """What owners state; empty: nothing."""

    queue: str = ""
    priority_class: str = ""
    preemptibility: str = ""


@dataclass(frozen=True, kw_only=True)
class OwnerGroups:
    """How the pods of one owner are grouped. Subgroups by name, with their minimum."""

    row: OwnerKind
    minimum: int
    subgroups: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class PodMembership:
    """The group of one pod."""

    owner: Json | None
    """The owner whose pods form the group; None: the pod is a group of its own."""
    part: str = ""
    """Which of several groups of this owner: the value of the pod label of its row."""
    minimum: int = 1
    subgroups: Mapping[str, int]
    subgroup: str = ""
    settings: OwnerSettings
    default_priority_class: str = TRAIN


def membership(chain: Sequence[Json], pod_labels: Mapping[str, str], table: OwnerKinds) -> PodMembership:
    """The group of a pod. `chain`: its owners, topmost first; an owner that cannot be read is left out."""
    settings = settings_of(chain, table)
    default_class = ""
    for owner in chain:
        row = table.of(owner)
        if row is None:
            continue
        default_class = default_class or row.default_priority_class
        if row.group_by == "child":
            continue
        if row.group_by == "pod":
            break
        found = groups_of(owner, row)
        return _member(owner, found, pod_labels, settings, default_class)
    return PodMembership(owner=None, subgroups={}, settings=settings, default_priority_class=default_class or TRAIN)


def settings_of(chain: Iterable[Json], table: OwnerKinds) -> OwnerSettings:
    """Of each setting the one that the topmost owner states. Every kind has the labels; rows name further fields."""
    stated = [_settings(owner, table.of(owner)) for owner in chain]
    return OwnerSettings(
        queue=next((each.queue for each in stated if each.queue), ""),
        priority_class=next((each.priority_class for each in stated if each.priority_class), ""),
        preemptibility=next((each.preemptibility for each in stated if each.preemptibility), ""),
    )


def groups_of(owner: Json, row: OwnerKind) -> OwnerGroups:
    """Raises OwnerKindError if a number in the owner is not one."""
    explicit = _amount(owner, row.minimum, "", default=0)
    subgroups: dict[str, int] = {}
    for source in row.subgroups:
        for name, minimum in _subgroups(owner, source):
            subgroups[name] = subgroups.get(name, 0) + minimum
    subgroups = {name: minimum for name, minimum in subgroups.items() if minimum}
    if explicit:
        # A minimum for the whole does not say which subgroups the pods above it are in.
        return OwnerGroups(row=row, minimum=explicit, subgroups=subgroups if row.group_by == "label" else {})
    minimum = sum(subgroups.values()) or max(1, row.minimum.default)
    return OwnerGroups(row=row, minimum=minimum, subgroups=subgroups)


def group_name(found: PodMembership) -> str:
    """The name of the PodGroup of a pod that has an owner; unique in its namespace."""
    assert found.owner is not None
    meta = found.owner["metadata"]
    unique = f"{meta['uid']}-{subgroup_name(found.part)}" if found.part else meta["uid"]
    return _named(meta["name"], unique)


def single_group_name(pod: str, uid: str) -> str:
    """The name of the PodGroup of a pod that is a group of its own."""
    return _named(pod, uid)


def subgroup_name(text: str) -> str:
    """A name as PodGroups allow it: frameworks write `Worker` in the spec and `worker` in labels."""
    return _NOT_IN_NAME.sub("-", text.lower()).strip("-")[:_LONGEST_NAME] or _UNNAMED


def _named(name: str, unique: str) -> str:
    room = _LONGEST_OBJECT_NAME - len(f"pg--{unique}")
    return f"pg-{name[:room].rstrip('.-')}-{unique}"


def _member(
    owner: Json, found: OwnerGroups, labels: Mapping[str, str], settings: OwnerSettings, default_class: str
) -> PodMembership:
    row = found.row
    subgroup = next((subgroup_name(labels[key]) for key in row.subgroup_labels if labels.get(key)), "")
    minimum, subgroups, part = found.minimum, found.subgroups, ""
    if row.group_by == "label":
        part = labels.get(row.label, "")
        minimum = 1 if not part else subgroups.get(subgroup_name(part), 1) if subgroups else minimum
        subgroups, subgroup = {}, ""
    if len(subgroups) < 2:  # noqa: PLR2004  one subgroup is the group
        subgroups = {}
    return PodMembership(
        owner=owner,
        part=part,
        minimum=minimum,
        subgroups=subgroups,
        subgroup=subgroup if subgroup in subgroups else "",
        settings=settings,
        default_priority_class=default_class,
    )


def _settings(owner: Json, row: OwnerKind | None) -> OwnerSettings:
    paths = (row.queue, row.priority_class, row.preemptibility) if row else ((), (), ())
    labels = (names.QUEUE_LABEL, names.PRIORITY_CLASS_LABEL, names.PREEMPTIBILITY_LABEL)
    queue, priority_class, preemptibility = (
        _text(owner, (f"metadata.labels[{label}]", *further)) for label, further in zip(labels, paths, strict=True)
    )
    if preemptibility not in ("", PREEMPTIBLE, NON_PREEMPTIBLE):
        where = f"{owner.get('kind')} metadata.labels[{names.PREEMPTIBILITY_LABEL}]"
        raise OwnerKindError(where, preemptibility, f"use {PREEMPTIBLE} or {NON_PREEMPTIBLE}")
    return OwnerSettings(queue, priority_class, preemptibility)


def _text(owner: Json, paths: Iterable[str]) -> str:
    found = (value for path in paths for value in rows.find(path, owner))
    return next((value for value in found if isinstance(value, str) and value), "")


def _subgroups(owner: Json, source: SubgroupSource) -> Iterable[tuple[str, int]]:
    for place in rows.find(source.at, owner):
        for name, part, field in _parts(place, source):
            if name in source.except_ or (source.unless and True in rows.find(source.unless, part)):
                continue
            factors = (_amount(part, amount, field, default=amount.default) for amount in source.pods)
            yield subgroup_name(name), math.prod(factors)


def _parts(place: Any, source: SubgroupSource) -> Iterable[tuple[str, Json, str]]:
    if source.shape == "object" and isinstance(place, Mapping):
        yield source.name, place, f"{source.at}."
    elif source.shape == "map" and isinstance(place, Mapping):
        for name, part in place.items():
            yield str(name), part if isinstance(part, Mapping) else {}, f"{source.at}.{name}."
    elif source.shape == "list" and isinstance(place, list):
        for index, part in enumerate(place):
            if isinstance(part, Mapping):
                yield str(part.get(source.name) or index), part, f"{source.at}[{index}]."


def _amount(value: Json, amount: Amount, field: str, *, default: int) -> int:
    stated = [_number(found, f"{field}{path}") for path in amount.paths for found in rows.find(path, value)]
    number = next((each for each in stated if each), 0) if stated else default
    if amount.at_most is not None:
        caps = [_number(found, f"{field}{amount.at_most}") for found in rows.find(amount.at_most, value)]
        number = min([number, *caps])
    return number


def _number(value: Any, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise OwnerKindError(field, value, "use a whole number of 0 or more")
    return value
