"""Webhooks as they are registered, and the question which of them a request concerns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pocketkube.api.admission import expression_variables
from pocketkube.api.expressions.evaluation import CompiledExpression
from pocketkube.api.registry import Registry, Resource
from pocketkube.api.request_attributes import Attributes
from pocketkube.api.storage.selectors import from_label_selector
from pocketkube.api.storage.store import Bucket, Store, Stored

Obj = dict[str, Any]

MUTATING = Bucket("admissionregistration.k8s.io", "mutatingwebhookconfigurations")
VALIDATING = Bucket("admissionregistration.k8s.io", "validatingwebhookconfigurations")

_NAMESPACES = Bucket("", "namespaces")
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
DEFAULT_TIMEOUT_SECONDS = 10


@dataclass(frozen=True, slots=True)
class WebhookRule:
    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: frozenset[str]
    scope: str

    @classmethod
    def read(cls, rule: Mapping[str, Any]) -> WebhookRule:
        return cls(
            frozenset(rule.get("operations") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("apiVersions") or ()),
            frozenset(rule.get("resources") or ()),
            rule.get("scope") or "*",
        )

    def matches(self, operation: str, resource: Resource, subresource: str) -> bool:
        return (
            _in(self.operations, operation)
            and _in(self.groups, resource.group)
            and _in(self.versions, resource.version)
            and (self.scope == "*" or (self.scope == "Namespaced") == _namespaced(resource))
            and self._names(resource.plural, subresource)
        )

    def _names(self, plural: str, subresource: str) -> bool:
        if "*/*" in self.resources:
            return True
        if not subresource:
            return plural in self.resources or "*" in self.resources
        wanted = {f"{plural}/{subresource}", f"*/{subresource}", f"{plural}/*"}
        return bool(wanted & self.resources)


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook of one configuration, ready to be matched and called."""

    configuration: str
    name: str
    client: Mapping[str, Any]
    rules: tuple[WebhookRule, ...]
    equivalent: bool
    ignore_failures: bool
    selects_namespace: Callable[[Mapping[str, str]], bool]
    selects_object: Callable[[Mapping[str, str]], bool]
    conditions: tuple[CompiledExpression, ...]
    timeout: int
    dry_run_safe: bool
    versions: tuple[str, ...]
    reinvoke: bool

    @classmethod
    def read(cls, configuration: str, hook: Mapping[str, Any]) -> Hook:
        compiler = expression_variables.Compiler(with_params=False)
        conditions = tuple(compiler.condition(each["expression"]) for each in hook.get("matchConditions") or ())
        return cls(
            configuration=configuration,
            name=hook.get("name", ""),
            client=hook.get("clientConfig") or {},
            rules=tuple(WebhookRule.read(rule) for rule in hook.get("rules") or ()),
            equivalent=hook.get("matchPolicy", "Equivalent") == "Equivalent",
            ignore_failures=hook.get("failurePolicy", "Fail") == "Ignore",
            selects_namespace=from_label_selector(hook.get("namespaceSelector") or {}),
            selects_object=from_label_selector(hook.get("objectSelector") or {}),
            conditions=conditions,
            timeout=hook.get("timeoutSeconds") or DEFAULT_TIMEOUT_SECONDS,
            dry_run_safe=hook.get("sideEffects") in _NO_SIDE_EFFECTS,
            versions=tuple(hook.get("admissionReviewVersions") or ()),
            reinvoke=hook.get("reinvocationPolicy") == "IfNeeded",
        )


class Hooks:
    """The webhooks of one kind of configuration, in the order in which they are called."""

    def __init__(self, store: Store, registry: Registry, bucket: Bucket) -> None:
        self._store = store
        self._registry = registry
        self._bucket = bucket
        self._hooks: list[Hook] | None = None
        store.listen(bucket, self._forget)

    def concerned(self, attrs: Attributes) -> list[tuple[Hook, Resource]]:
        """The webhooks whose rules fit, each with the version of the resource that it asked for.

        Selectors and conditions are for later: they look at the object as it is at the webhook's turn.
        """
        if attrs.resource.group == MUTATING.group:
            return []  # a webhook must not be able to block its own removal
        found = ((hook, self._resource(hook, attrs)) for hook in self._all())
        return [(hook, resource) for hook, resource in found if resource is not None]

    def selected(self, hook: Hook, attrs: Attributes, obj: Obj | None, old: Obj | None) -> bool:
        """Whether the labels of the object and of its namespace are those that the webhook selects."""
        labels = [(each.get("metadata") or {}).get("labels") or {} for each in (obj, old) if each is not None]
        if not any(hook.selects_object(each) for each in labels or [{}]):
            return False
        if attrs.resource.model == "core_v1.Namespace":
            return hook.selects_namespace(labels[0] if labels else {})
        if not attrs.namespace:
            return True
        namespace = self._store.get(_NAMESPACES, "", attrs.namespace)
        return hook.selects_namespace(namespace.labels if namespace else {})

    def _all(self) -> list[Hook]:
        if self._hooks is None:
            self._hooks = [hook for stored in self._store.items(self._bucket) for hook in _read(stored)]
        return self._hooks

    def _forget(self, change: object) -> None:
        del change
        self._hooks = None

    def _resource(self, hook: Hook, attrs: Attributes) -> Resource | None:
        """The resource itself, or another version of it if the webhook takes equivalent ones."""
        if any(rule.matches(attrs.operation, attrs.resource, attrs.subresource) for rule in hook.rules):
            return attrs.resource
        if not hook.equivalent or not hook.rules:
            return None
        others = (each for each in self._registry if each.storage == attrs.resource.storage and each.group)
        return next(
            (
                each
                for each in others
                if any(rule.matches(attrs.operation, each, attrs.subresource) for rule in hook.rules)
            ),
            None,
        )


def _read(stored: Stored) -> list[Hook]:
    configuration = stored.decode()
    return [Hook.read(stored.key.name, hook) for hook in configuration.get("webhooks") or ()]


def _in(allowed: frozenset[str], value: str) -> bool:
    return "*" in allowed or value in allowed


def _namespaced(resource: Resource) -> bool:
    return resource.namespaced
