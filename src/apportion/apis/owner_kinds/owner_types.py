"""What is kept of an owner: its own metadata, and the fields that its rows read.

Owners can be many, and large (whole pod templates). The types made here decode into plain dictionaries without any
other field, so that a cache of owners stays small, and two versions of an owner are equal if nothing of interest
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypedDict

from apportion.apis import names
from apportion.apis.owner_kinds import rows
from apportion.apis.owner_kinds.rows import OwnerKind, Shape, SubgroupSource

_EACH, _NAMED = rows.EACH, "{}"  # steps into the elements of a list, and into the values of a map
_LABELS = (names.QUEUE_LABEL, names.PRIORITY_CLASS_LABEL, names.PREEMPTIBILITY_LABEL)
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_REFERENCE = ("apiVersion", "kind", "name", "uid", "controller")
_IDENTITY: tuple[tuple[str, ...], ...] = (
    ("apiVersion",),
    ("kind",),
    *(("metadata", field) for field in _METADATA),
    *(("metadata", "labels", label) for label in _LABELS),
    *(("metadata", "ownerReferences", _EACH, field) for field in _REFERENCE),
)

_Tree = dict[str, "_Tree | None"]  # None: everything below is kept
# With types that are known at run time only.
_typed_dict: Any = TypedDict
_SCALAR: Any = str | int | float | bool | None
_list: Any = list
_dict: Any = dict


@cache
def owner_type(kind_rows: tuple[OwnerKind, ...]) -> Any:
    """The type to decode owners into whose kind has these rows."""
    tree: _Tree = {}
    for row in kind_rows:
        for source in row.subgroups:  # that it exists counts, also where nothing inside is read
            _below(tree, _start(source))
    for path in (*_IDENTITY, *(path for row in kind_rows for path in _paths(row))):
        inner = _below(tree, path[:-1])
        if inner is not None:
            inner[path[-1]] = None
    return _type(tree)


def _paths(row: OwnerKind) -> Iterator[tuple[str, ...]]:
    plain = (*row.minimum.paths, *row.queue, *row.priority_class, *row.preemptibility)
    for path in (*plain, *(condition.path for condition in row.when)):
        yield rows.steps(path)
    if row.minimum.at_most is not None:
        yield rows.steps(row.minimum.at_most)
    for source in row.subgroups:
        yield from _subgroup_paths(source)


def _subgroup_paths(source: SubgroupSource) -> Iterator[tuple[str, ...]]:
    inner = [path for amount in source.pods for path in (*amount.paths, amount.at_most) if path]
    inner += [source.unless] if source.unless else []
    inner += [source.name] if source.shape == "list" else []
    for path in inner:
        yield (*_start(source), *rows.steps(path))


def _start(source: SubgroupSource) -> tuple[str, ...]:
    into: dict[Shape, tuple[str, ...]] = {"object": (), "list": (_EACH,), "map": (_NAMED,)}
    return (*rows.steps(source.at), *into[source.shape])


def _below(tree: _Tree, path: Iterable[str]) -> _Tree | None:
    for step in path:
        below = tree.setdefault(step, {})
        if below is None:
            return None
        tree = below
    return tree


def _type(tree: _Tree | None) -> Any:
    """Fields of another type than expected are kept as they are: `grouping` says what is wrong with them."""
    if tree is None:
        return Any
    inner = {field: _type(below) for field, below in tree.items()}
    if _EACH in inner:
        return _list[inner[_EACH]] | dict[str, Any] | _SCALAR
    if _NAMED in inner:
        return _dict[str, inner[_NAMED]] | list[Any] | _SCALAR
    return _typed_dict("Part", inner, total=False) | list[Any] | _SCALAR
