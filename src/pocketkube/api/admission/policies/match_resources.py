"""Which requests a policy or a binding is about: rules, exceptions, and the labels of object and namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pocketkube.api.admission.webhook_matching import WebhookRule
from pocketkube.api.registry import Resource
from pocketkube.api.request_attributes import Attributes
from pocketkube.api.storage.selectors import from_label_selector

Obj = dict[str, Any]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule, perhaps for objects of certain names only."""

    rule: WebhookRule
    names: frozenset[str]

    @classmethod
    def read(cls, rule: Mapping[str, Any]) -> NamedRule:
        return cls(WebhookRule.read(rule), frozenset(rule.get("resourceNames") or ()))

    def matches(self, attrs: Attributes, resource: Resource) -> bool:
        named = not self.names or attrs.name in self.names
        return named and self.rule.matches(attrs.operation, resource, attrs.subresource)


@dataclass(frozen=True, slots=True)
class MatchResources:
    """The `matchConstraints` of a policy, or the `matchResources` of a binding."""

    rules: tuple[NamedRule, ...]
    excluded: tuple[NamedRule, ...]
    equivalent: bool
    selects_namespace: Callable[[Labels], bool]
    selects_object: Callable[[Labels], bool]
    selects_connections: bool  # what is connected with has no labels, and only a selector of everything selects it

    @classmethod
    def read(cls, match: Mapping[str, Any]) -> MatchResources:
        return cls(
            rules=tuple(map(NamedRule.read, match.get("resourceRules") or ())),
            excluded=tuple(map(NamedRule.read, match.get("excludeResourceRules") or ())),
            equivalent=match.get("matchPolicy", "Equivalent") == "Equivalent",
            selects_namespace=from_label_selector(match.get("namespaceSelector") or {}),
            selects_object=from_label_selector(match.get("objectSelector") or {}),
            selects_connections=not any((match.get("objectSelector") or {}).values()),
        )

    def may_concern(self, attrs: Attributes, others: Iterable[Resource]) -> bool:
        """Whether requests of this operation and resource can match at all, whatever their names and labels."""
        resources = (attrs.resource, *others) if self.equivalent else (attrs.resource,)
        return not self.rules or any(
            each.rule.matches(attrs.operation, resource, attrs.subresource)
            for each in self.rules
            for resource in resources
        )

    def resource_of(self, attrs: Attributes, others: Iterable[Resource]) -> Resource | None:
        """The resource in the version that the rules name; None if they do not match."""
        others = tuple(others) if self.equivalent else ()
        if _matching(self.excluded, attrs, others) is not None:
            return None
        return _matching(self.rules, attrs, others) if self.rules else attrs.resource

    def selects(self, attrs: Attributes, obj: Obj | None, old: Obj | None, namespace: Labels) -> bool:
        """Whether the labels of the object and of its namespace are those that are selected."""
        if attrs.operation == "CONNECT" and not self.selects_connections:
            return False
        labels = [(each.get("metadata") or {}).get("labels") or {} for each in (obj, old) if each is not None]
        if not any(self.selects_object(each) for each in labels or [{}]):
            return False
        if attrs.resource.model == "core_v1.Namespace":
            return self.selects_namespace(labels[0] if labels else {})
        return not attrs.resource.namespaced or self.selects_namespace(namespace)


def _matching(rules: tuple[NamedRule, ...], attrs: Attributes, others: Iterable[Resource]) -> Resource | None:
    for resource in (attrs.resource, *others):
        if any(each.matches(attrs, resource) for each in rules):
            return resource
    return None
