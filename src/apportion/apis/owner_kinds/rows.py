"""The rows of the table of owner kinds, as they are written in YAML.

    ownerKinds:
      - group: example.com           # API group
        kind: Training
        plural: trainings            # default: the kind in lower case with an s
        when:                        # use this row only if one of these holds; of several rows the first one counts
          - {path: spec.mode, equals: ordered}     # without `equals`: if the field is set
        groupBy: owner               # owner: all its pods; pod: each pod; label: pods with the same value of `label`;
                                     # child: the object that it creates decides
        label: example.com/replica
        minimum: {paths: [spec.minAvailable], default: 1}
        subgroups:                   # the minimum of the group is the sum of theirs, if `minimum` finds none
          - at: spec.replicaSpecs    # an object, a list of objects, or a map by name
            shape: map
            name: groupName          # object: its name; list: the field with the name
            pods: [{paths: [replicas], default: 1}]          # multiplied
            except: [Launcher]
            unless: suspend
        subgroupLabels: [example.com/role]   # labels of a pod with the name of its subgroup
        queue: [spec.queue]          # besides the labels that all kinds have
        priorityClass: [spec.priorityClassName]
        preemptibility: [spec.preemptibility]
        defaultPriorityClass: train

A path is a list of fields: `spec.template.spec`, `metadata.labels[example.com/x]`, `spec.jobs[].name` (each element).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta

from apportion.apis.errors import InputError
from apportion.apis.priorities import TRAIN

KEY = "ownerKinds"
GroupBy = Literal["owner", "pod", "label", "child"]
Shape = Literal["object", "list", "map"]

_STEP = re.compile(r"(?:^|\.)(?P<field>[A-Za-z0-9_-]+)|\[(?P<key>[^\[\]]*)\]", re.ASCII)
_PATH = r"^[A-Za-z0-9_-]+(\[[^\[\]]*\])*(\.[A-Za-z0-9_-]+(\[[^\[\]]*\])*)*$"
EACH = "[]"
_PODS = ("", "Pod")

Path = Annotated[str, Meta(pattern=_PATH)]


class OwnerKindError(InputError):
    """A table that cannot be used, or an owner whose fields contradict its row."""

    code = "InvalidOwnerKind"


class Row(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of everything in the table: a misspelt field is refused."""


class Amount(Row, frozen=True):
    """A number of pods: the first positive number at the paths, 0 if there are only zeros, else the default."""

    paths: tuple[Path, ...] = ()
    default: Annotated[int, Meta(ge=0)] = 1
    at_most: Path | None = None
    """Where a number stands that caps it."""


class SubgroupSource(Row, frozen=True):
    """Where subgroups stand in the owner."""

    at: Path
    shape: Shape
    name: str = ""
    pods: tuple[Amount, ...] = (Amount(),)
    except_: tuple[str, ...] = msgspec.field(default=(), name="except")
    unless: Path | None = None
    """A subgroup with this field set to true has no pods."""


class Condition(Row, frozen=True):
    path: Path
    equals: str | int | bool | None = None


class OwnerKind(Row, frozen=True):
    """One row."""

    group: str
    kind: Annotated[str, Meta(min_length=1)]
    plural: str = ""
    when: tuple[Condition, ...] = ()
    group_by: GroupBy = "owner"
    label: str = ""
    minimum: Amount = Amount()
    subgroups: tuple[SubgroupSource, ...] = ()
    subgroup_labels: tuple[str, ...] = ()
    queue: tuple[Path, ...] = ()
    priority_class: tuple[Path, ...] = ()
    preemptibility: tuple[Path, ...] = ()
    default_priority_class: Annotated[str, Meta(min_length=1)] = TRAIN

    @property
    def resource(self) -> str:
        """The plural under which the API serves the kind."""
        return self.plural or f"{self.kind.lower()}s"


def parse(text: str) -> tuple[OwnerKind, ...]:
    """Read a table; raises OwnerKindError with field, value and fix."""
    try:
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = getattr(error, "problem", None) or "is invalid"
        raise OwnerKindError(KEY, text, f"is not YAML ({problem})") from None
    entries = raw.get(KEY) if isinstance(raw, Mapping) and len(raw) == 1 else None
    if not isinstance(entries, list):
        raise OwnerKindError(KEY, raw, f"use a list of kinds under {KEY}")
    rows = tuple(read(entry, f"{KEY}[{index}]") for index, entry in enumerate(entries))
    _check_order(rows)
    return rows


@cache
def steps(path: str) -> tuple[str, ...]:
    """The fields of a path, EACH for the elements of a list."""
    return tuple(step["field"] if step["key"] is None else step["key"] or EACH for step in _STEP.finditer(path))


def find(path: str, value: Any) -> Iterator[Any]:
    """Everything that a path leads to; null and missing fields lead nowhere."""
    found = [value]
    for field in steps(path):
        found = [inner for each in found for inner in _inside(each, field)]
    yield from found


def _inside(value: Any, field: str) -> Iterator[Any]:
    if field == EACH:
        yield from value if isinstance(value, list) else ()
    elif isinstance(value, Mapping) and value.get(field) is not None:
        yield value[field]


def read(raw: Any, field: str) -> OwnerKind:
    """One row; raises OwnerKindError with field, value and fix."""
    try:
        row = msgspec.convert(raw, OwnerKind)
    except msgspec.ValidationError as error:
        problem, _, at = str(error).partition(" - at `$")
        raise OwnerKindError(f"{field}{at.removesuffix('`')}", raw, problem) from None
    if (row.group, row.kind) == _PODS:
        raise OwnerKindError(f"{field}.kind", row.kind, "name a kind that owns pods: pods are grouped by themselves")
    if (row.group_by == "label") != bool(row.label):
        raise OwnerKindError(f"{field}.label", row.label, "name a pod label with groupBy label, and only there")
    if row.group_by == "pod" and (row.subgroups or row.minimum.paths):
        raise OwnerKindError(f"{field}.groupBy", row.group_by, "omit minimum and subgroups: each pod is a group")
    if row.group_by == "child" and (row.subgroups or row.minimum.paths):
        raise OwnerKindError(f"{field}.groupBy", row.group_by, "write minimum and subgroups in the row of the child")
    for index, source in enumerate(row.subgroups):
        if (source.shape == "map") == bool(source.name):
            fix = "name the field with the name (list) or the subgroup (object); in a map the keys are the names"
            raise OwnerKindError(f"{field}.subgroups[{index}].name", source.name, fix)
        if not source.pods:
            raise OwnerKindError(f"{field}.subgroups[{index}].pods", [], "state at least one number of pods")
    return row


def check_place(row: OwnerKind, before: Iterable[OwnerKind], field: str) -> None:
    """A row behind one of its kind that always counts would never be used."""
    if any((each.group, each.kind) == (row.group, row.kind) and not each.when for each in before):
        fix = "write rows with `when` first, and at most one row without `when` for each kind"
        raise OwnerKindError(f"{field}.kind", row.kind, fix)


def _check_order(rows: tuple[OwnerKind, ...]) -> None:
    for index, row in enumerate(rows):
        check_place(row, rows[:index], f"{KEY}[{index}]")
