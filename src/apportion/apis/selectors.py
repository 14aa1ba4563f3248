"""Label selectors and node selector terms, and what they match.

Two families share the operators: a LabelSelector on pods and namespaces (In, NotIn, Exists,
DoesNotExist) and a NodeSelectorTerm (also Gt and Lt, and fields). A null label selector matches
nothing, an empty one everything; an empty node selector term matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from apportion.apis.meta import FrozenWire

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class Requirement(FrozenWire, frozen=True):
    key: str = ""
    operator: str = "In"
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        present = self.key in labels
        match self.operator:
            case "In":
                return present and labels[self.key] in self.values
            case "NotIn":
                return not present or labels[self.key] not in self.values
            case "Exists":
                return present
            case "DoesNotExist":
                return not present
            case "Gt" | "Lt":
                return present and self._compares(labels[self.key])
            case _:
                return False

    def _compares(self, label: str) -> bool:
        left, right = _integer(label), _integer(self.values[0]) if len(self.values) == 1 else None
        if left is None or right is None:
            return False
        return left > right if self.operator == "Gt" else left < right


class LabelSelector(FrozenWire, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        for key, value in self.match_labels.items():
            if labels.get(key) != value:
                return False
        return all(expression.matches(labels) for expression in self.match_expressions)

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels that it looks at."""
        return (*self.match_labels, *(expression.key for expression in self.match_expressions))


class NodeSelectorTerm(FrozenWire, frozen=True):
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if not self.match_expressions and not self.match_fields:
            return False
        fields = {"metadata.name": name}
        return all(field.matches(fields) for field in self.match_fields) and all(
            expression.matches(labels) for expression in self.match_expressions
        )

    def names(self) -> frozenset[str] | None:
        """The nodes that are named, None if nodes are not chosen by their names."""
        found: frozenset[str] | None = None
        for field in self.match_fields:
            if field.key == "metadata.name" and field.operator == "In":
                found = frozenset(field.values) if found is None else found & frozenset(field.values)
        return found


class NodeSelector(FrozenWire, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        return any(term.matches(name, labels) for term in self.node_selector_terms)

    def names(self) -> frozenset[str] | None:
        """The only nodes that can match, if every term names its own."""
        named = [term.names() for term in self.node_selector_terms]
        return frozenset().union(*(each or () for each in named)) if all(each is not None for each in named) else None


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text) or len(text) > len(str(_LARGEST)) + 1:
        return None
    number = int(text)
    return number if _SMALLEST <= number <= _LARGEST else None
