"""Answers in the form that the client asked for: whole objects, tables or metadata only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from apportion.cluster.transport import Response
from pocketkube.api import media_types
from pocketkube.api.content.conversion import Versions
from pocketkube.api.media_types import Accept
from pocketkube.api.registry import Resource
from pocketkube.api.storage.listing import Page
from pocketkube.api.storage.store import Stored
from pocketkube.api.tables import printing

Obj = dict[str, Any]


def answer(obj: Obj, accept: Accept, *, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = media_types.encode(obj, accept.media)
    return Response(code, {"content-type": accept.media, **(headers or {})}, body)


class Renderer:
    """Turns stored bytes into responses; bytes that already have the right form are passed on untouched."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions

    def single(self, resource: Resource, obj: Obj, accept: Accept, include: str, *, code: int = 200) -> Response:
        if obj.get("kind") == "Status":
            return answer(obj, Accept(media=accept.media), code=code)
        if accept.form == "table":
            meta = {"resourceVersion": str((obj.get("metadata") or {}).get("resourceVersion") or "")}
            obj = printing.render(resource, [obj], include, meta)
        elif accept.form == "metadata":
            obj = metadata_only(obj, accept.version)
        return answer(obj, accept, code=code)

    def stored(self, resource: Resource, stored: Stored, accept: Accept, include: str) -> Response:
        if self.passes_on(resource, accept):
            return Response(200, {"content-type": media_types.JSON}, stored.data + b"\n")
        return self.single(resource, self.decode(resource, stored), accept, include)

    def passes_on(self, resource: Resource, accept: Accept) -> bool:
        """Whether stored bytes have the form that the client asked for."""
        return accept.form == "object" and accept.media == media_types.JSON and self._versions.is_stored(resource)

    def page(self, resource: Resource, page: Page, accept: Accept, include: str) -> Response:
        meta = page.metadata(custom=resource.custom)
        if accept.form == "table":
            return answer(printing.render(resource, self._all(resource, page.items), include, meta), accept)
        if accept.form == "metadata":
            items = [metadata_only(obj, accept.version) for obj in self._all(resource, page.items)]
            version = f"meta.k8s.io/{accept.version}"
            return answer(
                {"kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": meta, "items": items}, accept
            )
        head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": meta}
        if accept.media != media_types.JSON:
            return answer({**head, "items": self._all(resource, page.items)}, accept)
        start = msgspec.json.encode(head)[:-1] + b',"items":['
        if self._versions.is_stored(resource):
            body = b",".join(item.data for item in page.items)
        else:
            body = b",".join(msgspec.json.encode(obj) for obj in self._all(resource, page.items))
        return Response(200, {"content-type": media_types.JSON}, start + body + b"]}\n")

    def decode(self, resource: Resource, stored: Stored) -> Obj:
        return self._versions.from_storage(resource, stored.decode())

    def _all(self, resource: Resource, items: Sequence[Stored]) -> list[Obj]:
        return [self.decode(resource, item) for item in items]


class EventRenderer:
    """Objects of watch events. A table repeats its column definitions only in its first event."""

    def __init__(
        self, renderer: Renderer, versions: Versions, resource: Resource, accept: Accept, include: str
    ) -> None:
        self._renderer = renderer
        self._resource = resource
        self._accept = accept
        self._include = include
        self._raw = accept.form == "object" and versions.is_stored(resource)
        self._first = True

    def __call__(self, stored: Stored) -> bytes:
        if self._raw:
            return stored.data
        obj = self._renderer.decode(self._resource, stored)
        if self._accept.form == "metadata":
            obj = metadata_only(obj, self._accept.version)
        elif self._accept.form == "table":
            obj = self._table([obj], {"resourceVersion": str(stored.revision)})
        return msgspec.json.encode(obj)

    def bookmark(self, revision: int, *, initial_end: bool) -> bytes:
        metadata: Obj = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        if self._accept.form == "table":
            return msgspec.json.encode(self._table([], metadata))
        kind, version = self._resource.kind, self._resource.api_version
        if self._accept.form == "metadata":
            kind, version = "PartialObjectMetadata", f"meta.k8s.io/{self._accept.version}"
        return msgspec.json.encode({"kind": kind, "apiVersion": version, "metadata": metadata})

    def _table(self, objects: list[Obj], metadata: Obj) -> Obj:
        table = printing.render(self._resource, objects, self._include, metadata)
        if not self._first:
            table["columnDefinitions"] = None
        self._first = False
        return table


def metadata_only(obj: Obj, version: str = "v1") -> Obj:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj.get("metadata") or {},
    }
