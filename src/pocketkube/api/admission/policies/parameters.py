"""The parameter objects that a binding gives to its policy."""

from __future__ import annotations

from typing import Any

from pocketkube.api.admission.policies.definitions import Binding, Policy
from pocketkube.api.content.conversion import bucket_of
from pocketkube.api.registry import Registry
from pocketkube.api.storage.selectors import from_label_selector
from pocketkube.api.storage.store import Store, Stored

Obj = dict[str, Any]


class ConfigurationError(Exception):
    """A policy or a binding that cannot be used as it stands; the failure policy decides what that means."""


class Parameters:
    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    def check(self, policy: Policy) -> None:
        """Raises ConfigurationError if the kind of the parameters is not served."""
        if policy.param_kind is not None and self._registry.by_api_version(*policy.param_kind) is None:
            version, kind = policy.param_kind
            named = f"{version}, Kind={kind}" if "/" in version else f"/{version}, Kind={kind}"
            raise ConfigurationError(f"failed to find resource referenced by paramKind: '{named}'")

    def of(self, policy: Policy, binding: Binding, namespace: str) -> list[Obj | None]:
        """The policy is evaluated once for each; a policy without parameters once with None."""
        reference = binding.param_ref
        if policy.param_kind is None or reference is None:
            return [None]
        resource = self._registry.by_api_version(*policy.param_kind)
        assert resource is not None, "checked before"
        if resource.namespaced:
            namespace = reference.namespace or namespace
            if not namespace:
                raise ConfigurationError(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                )
        elif reference.namespace:
            raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        else:
            namespace = ""
        found: list[Stored] = []
        if reference.name:
            stored = self._store.get(bucket_of(resource), namespace, reference.name)
            found = [stored] if stored is not None else []
        elif reference.selector is not None:
            selects = from_label_selector(reference.selector)
            found = [each for each in self._store.items(bucket_of(resource), namespace) if selects(each.labels)]
        if not found and reference.deny_if_missing:
            raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [{**each.decode(), "apiVersion": resource.api_version, "kind": resource.kind} for each in found]
