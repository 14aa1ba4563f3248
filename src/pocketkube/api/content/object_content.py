"""What an object of a kind may hold: decoding, defaults and validation, built-in and custom kinds alike."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any, Protocol

from pocketkube.api import status
from pocketkube.api.content import decoding, defaults
from pocketkube.api.custom_kinds import defaulting, definition_rules, pruning, structural_validation
from pocketkube.api.registry import Registry, Resource
from pocketkube.api.validation import objects

Obj = dict[str, Any]


class Strictness(Protocol):
    """How unknown fields are treated, and where warnings go."""

    field_validation: str
    warnings: list[str]


class Content:
    """Combines the models, the tables of defaults and the schemas of custom kinds."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def decode(self, resource: Resource, obj: Obj, how: Strictness) -> Obj:
        """The object as the server would keep it: identity checked, unknown fields dropped or refused."""
        self._check_type(resource, obj)
        if resource.custom:
            meta, unknown = self._custom_metadata(resource, obj)
            kept, unknown_fields = pruning.pruned(resource, obj)
            kept["metadata"] = meta
            unknown = [*unknown, *sorted(unknown_fields)]
        else:
            kept, unknown = decoding.canonical(resource, obj)
            if resource.model == "core_v1.Secret":
                _encode_string_data(kept)
        if unknown:
            self._report(resource, unknown, how)
        kept["apiVersion"], kept["kind"] = resource.api_version, resource.kind
        kept.setdefault("metadata", {})
        return kept

    def complete(self, resource: Resource, obj: Obj) -> None:
        """Fill in defaults, in place."""
        if resource.custom:
            defaulting.apply(resource, obj)
        else:
            defaults.apply(resource, obj)

    def check(self, resource: Resource, new: Obj, old: Obj | None, *, subresource: str = "") -> None:
        """Refuse what is not valid with all its causes."""
        causes = list(objects.validate(resource, new, old, subresource))
        if resource.custom:
            causes += structural_validation.validate(resource, new, old, subresource=subresource)
        elif resource.model == "apiextensions_v1.CustomResourceDefinition" and not subresource:
            causes += definition_rules.validate(new, old)
        if causes:
            raise status.invalid(resource, str(new["metadata"].get("name") or ""), causes)

    def _custom_metadata(self, resource: Resource, obj: Obj) -> tuple[Obj, list[str]]:
        try:
            return decoding.canonical_metadata(obj.get("metadata"))
        except status.ApiStatus as problem:
            why = problem.message.partition(": ")[2] or problem.message
            raise status.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}'
            ) from problem

    def _check_type(self, resource: Resource, obj: Obj) -> None:
        version, kind = obj.get("apiVersion") or "", obj.get("kind") or ""
        if not isinstance(version, str) or not isinstance(kind, str):
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {resource.kind}): couldn't get version/kind; "
                "json parse error: apiVersion and kind must be strings"
            )
        if resource.custom:
            self._check_custom_type(resource, obj, version, kind)
        if (version and version != resource.api_version) or (kind and kind != resource.kind):
            why = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:110"'
            if self._registry.by_api_version(version, kind) is not None:
                internal = resource.group.partition(".")[0] or "core"
                given = f"{version.rpartition('/')[2]}.{kind}"
                why = f"converting ({given}) to ({internal}.{resource.kind}): unknown conversion"
            message = f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}'
            raise status.bad_request(message)

    def _check_custom_type(self, resource: Resource, obj: Obj, version: str, kind: str) -> None:
        if not kind:
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing in "
                "the body of the request"
            )
        if version != resource.api_version:
            raise status.bad_request(
                f"the API version in the data ({version}) does not match the expected API version "
                f"({resource.api_version})"
            )
        if kind != resource.kind:
            meta = obj.get("metadata")
            name = str(meta.get("name") or "") if isinstance(meta, dict) else ""
            given = dataclasses.replace(resource, kind=kind)
            raise status.invalid(
                given, name, [status.Cause("kind", f'Invalid value: "{kind}": must be {resource.kind}')]
            )

    def _report(self, resource: Resource, unknown: list[str], how: Strictness) -> None:
        if how.field_validation == "Strict":
            raise decoding.strict_error(resource, unknown)
        if how.field_validation == "Warn":
            how.warnings.extend(f'unknown field "{path}"' for path in unknown)


def _encode_string_data(secret: Obj) -> None:
    texts = secret.pop("stringData", None)
    if isinstance(texts, dict):
        data = secret.get("data") or {}
        secret["data"] = data | {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
