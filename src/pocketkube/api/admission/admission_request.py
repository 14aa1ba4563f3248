"""The AdmissionRequest that webhooks receive and that expressions know as `request`."""

from __future__ import annotations

import uuid
from typing import Any

from pocketkube.api.discovery import resource_lists
from pocketkube.api.registry import Resource
from pocketkube.api.request_attributes import Attributes

Obj = dict[str, Any]

_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


def build(resource: Resource, attrs: Attributes, obj: Obj | None, old: Obj | None) -> Obj:
    """The request as somebody sees it who asked for the resource in a certain version."""
    own, asked = attrs.resource, resource
    kind = {"group": asked.group, "version": asked.version, "kind": asked.kind}
    request_kind = {"group": own.group, "version": own.version, "kind": own.kind}
    if obj is not None and attrs.subresource and obj.get("kind") != own.kind:  # a Binding, a Scale, PodExecOptions
        group, version, name, _ = resource_lists.subresource_facts(own, attrs.subresource)
        kind = request_kind = {"group": group, "version": version, "kind": name}
        obj = {"kind": name, "apiVersion": f"{group}/{version}" if group else version, **obj}
    found: Obj = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "resource": {"group": asked.group, "version": asked.version, "resource": asked.plural},
        "requestKind": request_kind,
        "requestResource": {"group": own.group, "version": own.version, "resource": own.plural},
        "operation": attrs.operation,
        "userInfo": attrs.user.to_dict(),
        "object": in_version(asked, obj) if obj is not None else None,
        "oldObject": in_version(asked, old) if old is not None else None,
        "dryRun": attrs.dry_run,
    }
    if kind_of_options := _OPTIONS.get(attrs.operation):
        found["options"] = {"kind": kind_of_options, "apiVersion": "meta.k8s.io/v1", **attrs.options}
    if attrs.subresource:
        found["subResource"] = found["requestSubResource"] = attrs.subresource
    if attrs.name:
        found["name"] = attrs.name
    if attrs.namespace:
        found["namespace"] = attrs.namespace
    return found


def in_version(resource: Resource, obj: Obj) -> Obj:
    """The object in the version that was asked for."""
    if obj.get("kind") != resource.kind or obj.get("apiVersion") == resource.api_version:
        return obj
    return {**obj, "apiVersion": resource.api_version}
