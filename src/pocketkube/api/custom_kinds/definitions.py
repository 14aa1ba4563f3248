"""Custom kinds: a stored CustomResourceDefinition is a served resource, at once.

Names are accepted and the definition is Established in the same write that stores it, so that a client
which was told of its success can use the kind. Deleting a definition deletes its objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from pocketkube.api import status
from pocketkube.api.content.conversion import Versions
from pocketkube.api.registry import PrinterColumn, Registry, Resource, ScalePaths
from pocketkube.api.request_attributes import ADMIN
from pocketkube.api.storage import metadata
from pocketkube.api.storage.deletion import CLEANUP, CRDS, Deleter
from pocketkube.api.storage.store import Bucket, Change, Store
from pocketkube.api.storage.writer import Options, Target, Update, Writer

Obj = dict[str, Any]
log = logging.getLogger(__name__)


def resources_of(definition: Obj) -> list[Resource]:
    """What a definition makes the server serve: one resource per served version."""
    spec = definition["spec"]
    names = spec["names"]
    found = []
    for version in spec.get("versions") or []:
        if not version.get("served"):
            continue
        parts = version.get("subresources") or {}
        scale = parts.get("scale")
        found.append(
            Resource(
                group=spec["group"],
                version=version["name"],
                kind=names["kind"],
                plural=names["plural"],
                singular=names.get("singular") or names["kind"].lower(),
                namespaced=spec.get("scope") == "Namespaced",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=frozenset(name for name in ("status", "scale") if parts.get(name) is not None),
                schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
                printer_columns=tuple(_column(column) for column in version.get("additionalPrinterColumns") or ()),
                list_kind=names.get("listKind") or f"{names['kind']}List",
                scale=_scale_paths(scale) if scale is not None else None,
                selectable_fields=tuple(
                    field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()
                ),
            )
        )
    return found


class Definitions:
    """Keeps the registry in step with the stored definitions."""

    def __init__(self, store: Store, registry: Registry, versions: Versions, clock: metadata.Clock) -> None:
        self._store = store
        self._registry = registry
        self._versions = versions
        self._clock = clock
        self._served: dict[str, list[Resource]] = {}
        self._cleaning: dict[str, asyncio.Task[None]] = {}
        self._writer: Writer | None = None
        self._deleter: Deleter | None = None
        store.listen(CRDS, self._on_change)

    def use(self, writer: Writer, deleter: Deleter) -> None:
        """The writers that clean-up works through; they are made after this object."""
        self._writer, self._deleter = writer, deleter

    def accept(self, definition: Obj, old: Obj | None = None) -> None:
        """Settle names and conditions, in place, as the definition is written."""
        spec, now = definition["spec"], metadata.timestamp(self._clock())
        state = definition.setdefault("status", {})
        conflict = self._name_conflict(definition)
        conditions = [
            {
                "type": "NamesAccepted",
                "status": "False" if conflict else "True",
                "reason": conflict[0] if conflict else "NoConflicts",
                "message": conflict[1] if conflict else "no conflicts found",
            },
            {
                "type": "Established",
                "status": "False" if conflict else "True",
                "reason": "NotAccepted" if conflict else "InitialNamesAccepted",
                "message": "not all names are accepted" if conflict else "the initial names have been accepted",
            },
        ]
        kept = [each for each in state.get("conditions") or [] if each["type"] not in ("NamesAccepted", "Established")]
        before = {each["type"]: each for each in (((old or {}).get("status") or {}).get("conditions") or [])}
        for condition in conditions:
            known = before.get(condition["type"])
            same = known is not None and known.get("status") == condition["status"]
            condition["lastTransitionTime"] = known["lastTransitionTime"] if known and same else now
        state["conditions"] = [*conditions, *kept]
        if not conflict:
            state["acceptedNames"] = spec["names"]
        else:
            state.setdefault("acceptedNames", {"plural": "", "kind": ""})
        storage = next((version["name"] for version in spec["versions"] if version.get("storage")), None)
        stored = state.setdefault("storedVersions", [])
        if storage and storage not in stored:
            stored.append(storage)

    def selectable(self, bucket: Bucket) -> tuple[str, ...]:
        resources = self._served.get(f"{bucket.plural}.{bucket.group}") or []
        return tuple({field: None for resource in resources for field in resource.selectable_fields})

    async def close(self) -> None:
        for task in tuple(self._cleaning.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _on_change(self, change: Change) -> None:
        definition = change.new.decode()
        name = change.new.key.name
        for resource in self._served.pop(name, []):
            self._registry.remove(resource)
        bucket = Bucket(definition["spec"]["group"], definition["spec"]["names"]["plural"])
        if change.type == "DELETED":
            self._versions.forget(bucket)
            return
        if not _established(definition):
            return
        storage = next(version["name"] for version in definition["spec"]["versions"] if version.get("storage"))
        self._versions.set_storage(bucket, storage)
        self._served[name] = resources_of(definition)
        for resource in self._served[name]:
            self._registry.add(resource)
        if definition["metadata"].get("deletionTimestamp") and name not in self._cleaning:
            task = asyncio.get_running_loop().create_task(self._clean(definition, bucket))
            self._cleaning[name] = task
            task.add_done_callback(lambda _task: self._cleaning.pop(name, None))

    async def _clean(self, definition: Obj, bucket: Bucket) -> None:
        """Delete all objects of a kind that goes away, then let its definition go."""
        assert self._writer is not None
        assert self._deleter is not None
        changed = asyncio.Event()
        stop = self._store.listen(bucket, lambda _change: changed.set())
        try:
            resource = resources_of({**definition, "spec": _all_served(definition["spec"])})[0]
            while items := self._store.items(bucket):
                changed.clear()
                for item in items:
                    with contextlib.suppress(status.ApiStatus):
                        await self._deleter.delete(
                            Target(resource, item.key.namespace, item.key.name), {}, Options(user=ADMIN)
                        )
                if self._store.count(bucket):
                    await changed.wait()
            where = self._registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            assert where is not None
            with contextlib.suppress(status.ApiStatus):
                await self._writer.update(
                    Target(where, "", definition["metadata"]["name"]),
                    Update(_without_cleanup, internal=True),
                    Options(user=ADMIN),
                )
        finally:
            stop()

    def _name_conflict(self, definition: Obj) -> tuple[str, str] | None:
        """The first requested name that another kind of the group already has."""
        spec = definition["spec"]
        own = definition["metadata"].get("name")
        names = spec["names"]
        plurals: set[str] = set()
        kinds: set[str] = set()
        for name, resources in self._served.items():
            for resource in resources:
                if name != own and resource.group == spec["group"]:
                    plurals |= {resource.plural, resource.singular, *resource.short_names}
                    kinds |= {resource.kind, resource.list_kind}
        checks = [
            ("PluralConflict", [names.get("plural")], plurals),
            ("SingularConflict", [names.get("singular")], plurals),
            ("ShortNamesConflict", names.get("shortNames") or [], plurals),
            ("KindConflict", [names.get("kind")], kinds),
            ("ListKindConflict", [names.get("listKind")], kinds),
        ]
        for reason, wanted, taken in checks:
            for each in wanted:
                if each and each in taken:
                    return reason, f'"{each}" is already in use'
        return None


def _without_cleanup(definition: Obj) -> Obj:
    meta = definition["metadata"]
    meta["finalizers"] = [each for each in meta.get("finalizers") or [] if each != CLEANUP]
    if not meta["finalizers"]:
        del meta["finalizers"]
    return definition


def _all_served(spec: Obj) -> Obj:
    return {**spec, "versions": [{**version, "served": True} for version in spec["versions"]]}


def _established(definition: Obj) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _column(column: Obj) -> PrinterColumn:
    return PrinterColumn(
        name=column["name"],
        type=column["type"],
        json_path=column["jsonPath"],
        description=column.get("description", ""),
        format=column.get("format", ""),
        priority=column.get("priority", 0),
    )


def _scale_paths(scale: Obj) -> ScalePaths:
    return ScalePaths(
        spec_replicas=scale.get("specReplicasPath", ".spec.replicas"),
        status_replicas=scale.get("statusReplicasPath", ".status.replicas"),
        label_selector=scale.get("labelSelectorPath") or None,
    )
