"""The table of owner kinds: the shipped rows, and those that a configuration adds or replaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from apportion.apis.owner_kinds import owner_types, rows
from apportion.apis.owner_kinds.rows import Condition, OwnerKind, OwnerKindError

Json = Mapping[str, Any]
_SHIPPED = "kinds.yaml"


class OwnerKinds:
    """Rows by API group and kind."""

    def __init__(self, entries: Iterable[OwnerKind]) -> None:
        self._rows: dict[tuple[str, str], list[OwnerKind]] = {}
        for row in entries:
            self._rows.setdefault((row.group, row.kind), []).append(row)
        labels = ((row.label, *row.subgroup_labels) for found in self._rows.values() for row in found)
        self.pod_labels = tuple(sorted({label for each in labels for label in each if label}))
        """The labels of pods that say to which group and subgroup of their owner they belong."""

    def __contains__(self, kind: tuple[str, str]) -> bool:
        """API group and kind."""
        return kind in self._rows

    def of(self, owner: Json) -> OwnerKind | None:
        """The row for an object; None if its kind is not in the table."""
        group, _, _ = str(owner.get("apiVersion", "")).rpartition("/")
        for row in self._rows.get((group, str(owner.get("kind", ""))), ()):
            if not row.when or any(_holds(condition, owner) for condition in row.when):
                return row
        return None

    def resource(self, group: str, kind: str) -> str | None:
        """The plural under which the API serves a kind; None if the kind is not in the table."""
        found = self._rows.get((group, kind))
        return found[0].resource if found else None

    def owner_type(self, group: str, kind: str) -> Any:
        """The type to decode owners of a kind into: the fields that its rows read."""
        return owner_types.owner_type(tuple(self._rows[group, kind]))

    def kinds(self) -> list[tuple[str, str, str]]:
        """API group, kind and plural of every kind, sorted."""
        return sorted((group, kind, found[0].resource) for (group, kind), found in self._rows.items())

    def extended_by(self, entries: Iterable[Any]) -> tuple[OwnerKinds, list[OwnerKindError]]:
        """With the rows of a configuration, which replace all shipped rows of their kinds. Rows that cannot be used are
        left out; what is wrong with them."""
        added: list[OwnerKind] = []
        problems: list[OwnerKindError] = []
        for index, entry in enumerate(entries):
            field = f"{rows.KEY}[{index}]"
            try:
                row = rows.read(entry, field)
                rows.check_place(row, added, field)
            except OwnerKindError as problem:
                problems.append(problem)
            else:
                added.append(row)
        replaced = {(row.group, row.kind) for row in added}
        kept = [row for key, found in self._rows.items() if key not in replaced for row in found]
        return OwnerKinds([*kept, *added]), problems

    def rows_of(self, kind: tuple[str, str]) -> tuple[OwnerKind, ...]:
        """API group and kind."""
        return tuple(self._rows.get(kind, ()))


@cache
def shipped() -> OwnerKinds:
    return OwnerKinds(rows.parse(resources.files(__package__).joinpath(_SHIPPED).read_text()))


def _holds(condition: Condition, owner: Json) -> bool:
    found = [value for value in rows.find(condition.path, owner) if value not in ("", [], {})]
    if condition.equals is None:
        return bool(found)
    return any(type(value) is type(condition.equals) and value == condition.equals for value in found)
