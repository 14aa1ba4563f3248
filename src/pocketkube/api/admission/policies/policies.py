"""Policies: every write is judged by the policies that match it and have a binding that matches it.

Policies and bindings are compiled when the first write after a change needs them. For each operation on each
resource, the policies that can concern it are listed once, so that a write which none concerns costs one look-up.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketkube.api import status
from pocketkube.api.admission import admission_request
from pocketkube.api.admission.policies import decisions
from pocketkube.api.admission.policies.decisions import Denial
from pocketkube.api.admission.policies.definitions import Binding, Policy
from pocketkube.api.admission.policies.match_resources import MatchResources
from pocketkube.api.admission.policies.parameters import ConfigurationError, Parameters
from pocketkube.api.expressions.authorization import Authorizer, Permissions
from pocketkube.api.registry import Registry, Resource
from pocketkube.api.request_attributes import Attributes
from pocketkube.api.storage.store import Bucket, Change, Store

Obj = dict[str, Any]
log = logging.getLogger(__name__)

GROUP = "admissionregistration.k8s.io"
POLICIES = Bucket(GROUP, "validatingadmissionpolicies")
BINDINGS = Bucket(GROUP, "validatingadmissionpolicybindings")

_NAMESPACES = Bucket("", "namespaces")
_NAMESPACE_METADATA = frozenset(
    {
        *("name", "generateName", "namespace", "labels", "annotations", "uid", "creationTimestamp", "finalizers"),
        *("deletionGracePeriodSeconds", "deletionTimestamp", "generation", "resourceVersion"),
    }
)
_CODES = {"Forbidden": 403, "RequestEntityTooLarge": 413}
_INVALID = 422

_Endpoint = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _BoundPolicy:
    policy: Policy
    bindings: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """One request, with its namespace and the other versions of its resource."""

    attrs: Attributes
    obj: Obj | None
    old: Obj | None
    namespace: Obj | None
    others: tuple[Resource, ...]

    def matched(self, match: MatchResources) -> Resource | None:
        """The resource in the version that was asked for; None if the request is not meant."""
        labels = ((self.namespace or {}).get("metadata") or {}).get("labels") or {}
        resource = match.resource_of(self.attrs, self.others)
        meant = resource is not None and match.selects(self.attrs, self.obj, self.old, labels)
        return resource if meant else None


class Policies:
    """All policies of the server."""

    def __init__(self, store: Store, registry: Registry, permissions: Permissions | None) -> None:
        self._store = store
        self._registry = registry
        self._permissions = permissions
        self._parameters = Parameters(store, registry)
        self._bound: list[_BoundPolicy] | None = None
        self._concerned: dict[_Endpoint, list[_BoundPolicy]] = {}
        self._generation = -1
        for bucket in (POLICIES, BINDINGS):
            store.listen(bucket, self._forget)

    def validate(self, attrs: Attributes, obj: Obj | None, old: Obj | None) -> None:
        """Refuses by raising ApiStatus: the first denial gives message and code. Warnings go to the attributes."""
        concerned = self._concerning(attrs)
        if not concerned:
            return
        judged = _Judgement(attrs)
        seen = _Seen(attrs, obj, old, self._namespace(attrs), self._others(attrs.resource))
        for bound in concerned:
            self._judge(judged, bound, seen)
        judged.end(obj)

    def _judge(self, judged: _Judgement, bound: _BoundPolicy, seen: _Seen) -> None:
        policy = bound.policy
        resource = seen.matched(policy.match)
        if resource is None:
            return
        try:
            self._parameters.check(policy)
        except ConfigurationError as problem:
            judged.misconfigured(policy, None, problem)
            return
        values: dict[str, Any] | None = None
        for binding in bound.bindings:
            if binding.match is not None and seen.matched(binding.match) is None:
                continue
            try:
                params = self._parameters.of(policy, binding, seen.attrs.namespace)
            except ConfigurationError as problem:
                judged.misconfigured(policy, binding, problem)
                continue
            values = values or self._values(resource, seen)
            for param in params:
                judged.add(policy, binding, decisions.decide(policy, {**values, "params": param}))

    def _values(self, resource: Resource, seen: _Seen) -> dict[str, Any]:
        request = admission_request.build(resource, seen.attrs, seen.obj, seen.old)
        return {
            "object": request.pop("object"),
            "oldObject": request.pop("oldObject"),
            "request": request,
            "namespaceObject": seen.namespace,
            "authorizer": Authorizer.of(self._permissions, seen.attrs),
        }

    def _namespace(self, attrs: Attributes) -> Obj | None:
        """The namespace of the object, as far as expressions may see it."""
        if not attrs.resource.namespaced:
            return None
        stored = self._store.get(_NAMESPACES, "", attrs.namespace)
        if stored is None:
            return None
        obj = stored.decode()
        metadata = {key: value for key, value in obj["metadata"].items() if key in _NAMESPACE_METADATA}
        return {"metadata": metadata, "spec": obj.get("spec") or {}, "status": obj.get("status") or {}}

    # Which policies can concern a request

    def _concerning(self, attrs: Attributes) -> list[_BoundPolicy]:
        if (attrs.resource.group, attrs.resource.plural) in (POLICIES, BINDINGS):
            return []  # a policy must not be able to block its own removal
        if self._bound is None or self._generation != self._registry.generation:
            self._bound = self._read()
            self._generation = self._registry.generation
            self._concerned.clear()
        if not self._bound:
            return self._bound
        endpoint = (attrs.operation, attrs.resource.api_version, attrs.resource.plural, attrs.subresource)
        found = self._concerned.get(endpoint)
        if found is None:
            others = self._others(attrs.resource)
            found = [each for each in self._bound if each.policy.match.may_concern(attrs, others)]
            self._concerned[endpoint] = found
        return found

    def _others(self, resource: Resource) -> tuple[Resource, ...]:
        """The same objects in other groups and versions."""
        if not resource.group:
            return ()
        same = (each for each in self._registry if each.storage == resource.storage and each != resource)
        return tuple(each for each in same if each.group)

    def _read(self) -> list[_BoundPolicy]:
        bindings: dict[str, list[Binding]] = {}
        for stored in self._store.items(BINDINGS):
            binding = Binding.read(stored.key.name, stored.decode().get("spec") or {})
            bindings.setdefault(binding.policy, []).append(binding)
        return [
            _BoundPolicy(Policy.read(stored.key.name, stored.decode().get("spec") or {}), tuple(bound))
            for stored in self._store.items(POLICIES)
            if (bound := bindings.get(stored.key.name))
        ]

    def _forget(self, change: Change) -> None:
        del change
        self._bound = None


class _Judgement:
    """What all policies together say about one request."""

    def __init__(self, attrs: Attributes) -> None:
        self._attrs = attrs
        self._denials: list[tuple[Policy, Binding | None, Denial]] = []

    def misconfigured(self, policy: Policy, binding: Binding | None, problem: ConfigurationError) -> None:
        if not policy.ignore_failures:
            what = "policy" if binding is None else "binding"
            self._denials.append((policy, binding, Denial(f"failed to configure {what}: {problem}")))

    def add(self, policy: Policy, binding: Binding, decided: decisions.Decisions) -> None:
        for denial in decided.denials:
            if "Deny" in binding.actions:
                self._denials.append((policy, binding, denial))
            if "Warn" in binding.actions:
                where = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
                self._attrs.warn(f"Validation failed for {where}: {denial.message}")
            if "Audit" in binding.actions:
                self._audit(policy, "validation_failure", denial.message)
        self._denials += [(policy, binding, denial) for denial in decided.broken_annotations]
        for key, value in decided.annotations:
            self._audit(policy, key, value)

    def end(self, obj: Obj | None) -> None:
        if not self._denials:
            return
        policy, binding, denial = self._denials[0]
        where = f"ValidatingAdmissionPolicy '{policy.name}'"
        where += f" with binding '{binding.name}'" if binding is not None else ""
        message = f"{where} denied request: {denial.message}"
        problem = status.forbidden(self._attrs.resource, _name(self._attrs, obj), message)
        problem.reason, problem.code = denial.reason, _CODES.get(denial.reason, _INVALID)
        problem.details = {**(problem.details or {}), "causes": [{"message": message}]}
        raise problem

    def _audit(self, policy: Policy, key: str, value: str) -> None:
        """There is no audit log: annotations of requests are in the server's own, for those who debug policies."""
        attrs = self._attrs
        log.debug(
            "audit annotation %r=%r of %s %s %r",
            f"{policy.name}/{key}",
            value,
            attrs.operation,
            attrs.resource.qualified,
            f"{attrs.namespace}/{attrs.name}",
        )


def _name(attrs: Attributes, obj: Mapping[str, Any] | None) -> str:
    metadata = (obj or {}).get("metadata") or {}
    return attrs.name or str(metadata.get("name") or metadata.get("generateName") or "Unknown")
