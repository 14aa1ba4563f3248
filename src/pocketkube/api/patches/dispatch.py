"""PATCH: which kind of patch a request carries, and the update that it means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apportion.cluster.transport import HttpRequest
from pocketkube.api import limits, media_types, status
from pocketkube.api.content import bounds
from pocketkube.api.patches import (
    json_patch,
    managed_fields,
    merge_patch,
    merge_types,
    server_side_apply,
    strategic_merge_patch,
)
from pocketkube.api.patches.errors import PatchError
from pocketkube.api.registry import Resource
from pocketkube.api.storage import listing, metadata
from pocketkube.api.storage.writer import Options, Target, Update, Writer, Written
from pocketkube.api.turns import Turns

Obj = dict[str, Any]
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
KINDS = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


class Patcher:
    def __init__(self, writer: Writer, clock: metadata.Clock, turns: Turns) -> None:
        self._writer = writer
        self._turns = turns
        self._clock = clock

    async def patch(self, target: Target, request: HttpRequest, options: Options) -> Written:
        media = media_types.media_of(request.headers)
        if media == APPLY_PATCH:
            return await self._apply(target, request, options)
        sent = request.body or b"" if media == STRATEGIC_PATCH else b""
        change = await self.change(target, request)
        update = Update(change, patched=True, strategic=sent)
        return await self._writer.update(target, update, options)

    async def _apply(self, target: Target, request: HttpRequest, options: Options) -> Written:
        resource = target.resource
        if not options.explicit_manager:
            problem = "Required value: is required for apply patch"
            raise listing.invalid_options("PatchOptions", "fieldManager", problem)
        config = await self._turns.run(options.size, _configuration, target, request.body or b"")
        now = self._clock()

        def apply_to(live: Obj | None) -> Obj:
            _check_configuration(resource, target, config)
            return managed_fields.applied(
                resource, live, config, options.field_manager, target.subresource, now, force=options.force
            )

        create = None if target.subresource else lambda: apply_to(None)
        return await self._writer.update(target, Update(apply_to, create=create, applied=True), options)

    async def change(self, target: Target, request: HttpRequest) -> Callable[[Obj], Obj]:
        """What any patch but apply does to a document."""
        media = media_types.media_of(request.headers)
        if media not in _kinds(target):
            if target.resource.custom:
                raise status.unsupported_media_type(_kinds(target))
            raise status.ApiStatus(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        return await self._turns.run(len(request.body or b""), _change, target, media, request.body or b"")


def _change(target: Target, media: str, body: bytes) -> Callable[[Obj], Obj]:
    try:
        patch = media_types.decode_json(body)
    except status.ApiStatus as problem:
        if problem.code != 400:  # noqa: PLR2004  too large
            raise
        raise status.bad_request(f"error decoding patch: {problem.message}") from problem
    if media == JSON_PATCH:
        operations = _operations(patch)
        return lambda current: _document(json_patch_or_422(current, operations))
    if not isinstance(patch, dict):
        raise status.bad_request(
            f"error decoding patch: json: cannot unmarshal {media_types.json_type(patch)} into Go value of type "
            "map[string]interface {}"
        )
    if media == STRATEGIC_PATCH:
        node = merge_types.of_resource(target.resource)
        return lambda current: _strategic(node, current, patch)
    return lambda current: _document(merge_patch.apply(current, patch))


def _configuration(target: Target, body: bytes) -> Obj:
    """The applied configuration: an object of the right kind and name that says nothing about managers."""
    try:
        config = media_types.decode_yaml(body)
    except status.ApiStatus as problem:
        if problem.code != 400:  # noqa: PLR2004  too large
            raise
        raise status.bad_request(f"error decoding YAML: {problem.message}") from problem
    if not isinstance(config, dict):
        raise status.bad_request("error decoding YAML: the configuration is not an object")
    version, kind = config.get("apiVersion") or "", config.get("kind") or ""
    resource = target.resource
    if not kind or not version:
        raise status.bad_request(f"invalid object type: {version or '/'}, Kind={kind}")
    if version != resource.api_version:
        raise status.bad_request(
            f"Incorrect version specified in apply patch. Specified patch version: {version}, "
            f"expected: {resource.api_version}"
        )
    if kind != resource.kind:
        raise status.bad_request(
            f"the kind of the configuration ({kind}) does not match the kind of the URL ({resource.kind})"
        )
    meta = config.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise status.bad_request("metadata of the configuration is not an object")
    if meta.get("managedFields") is not None:
        raise status.bad_request("metadata.managedFields must be nil")
    meta.setdefault("name", target.name)
    if resource.namespaced:
        meta.setdefault("namespace", target.namespace)
    return config


def _check_configuration(resource: Resource, target: Target, config: Obj) -> None:
    try:
        server_side_apply.check(merge_types.of_resource(resource), config)
    except PatchError as problem:
        named = f"{target.namespace}/{target.name}; {resource.group}/{resource.version}, Kind={resource.kind}"
        raise status.bad_request(f"failed to create typed patch object ({named}): {problem}") from problem


def _kinds(target: Target) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if kind != STRATEGIC_PATCH or not target.resource.custom)


def _operations(patch: Any) -> list[Any]:
    """The operations of a JSON patch, as far as their types are right; null is a patch without any."""
    if patch is None:
        return []
    if not isinstance(patch, list):
        raise _wrong_type(patch, "value of type []handlers.jsonPatchOp")
    if len(patch) > limits.MAX_PATCH_OPERATIONS:
        most = f"The allowed maximum operations in a JSON patch is {limits.MAX_PATCH_OPERATIONS}, got {len(patch)}"
        raise status.ApiStatus(413, "RequestEntityTooLarge", f"Request entity too large: {most}")
    for operation in patch:
        if not isinstance(operation, dict) and operation is not None:
            raise _wrong_type(operation, "value of type handlers.jsonPatchOp")
        for name in ("op", "path", "from"):
            value = (operation or {}).get(name)
            if value is not None and not isinstance(value, str):
                raise _wrong_type(value, f"struct field jsonPatchOp.{name} of type string")
    return patch


def _wrong_type(value: Any, target: str) -> status.ApiStatus:
    return status.bad_request(
        f"error decoding patch: json: cannot unmarshal {media_types.json_type(value)} into Go {target}"
    )


def json_patch_or_422(current: Obj, patch: list[Any]) -> Any:
    try:
        return json_patch.apply(current, patch)
    except PatchError as problem:
        message = "the server rejected our request due to an error in our request"
        raise status.ApiStatus(422, "Invalid", message, {}) from problem


def _strategic(node: merge_types.MergeNode, current: Obj, patch: Obj) -> Obj:
    try:
        return strategic_merge_patch.apply(node, current, patch)
    except PatchError as problem:
        raise status.bad_request(str(problem)) from problem


def _document(value: Any) -> Obj:
    if not isinstance(value, dict):
        raise status.bad_request("the patch makes something other than an object")
    bounds.check_depth(value)  # moves can nest what was flat
    return value
