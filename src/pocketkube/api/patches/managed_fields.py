"""Who manages which field (`metadata.managedFields`), kept up to date on every write.

Whoever changes a field manages it; whoever applies a configuration manages what it names. One entry per
manager, operation and subresource.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from pocketkube.api import status
from pocketkube.api.patches import field_set_encoding, field_sets, merge_types, server_side_apply
from pocketkube.api.patches.errors import PatchError
from pocketkube.api.patches.field_set_encoding import Tree
from pocketkube.api.patches.field_sets import Paths
from pocketkube.api.registry import Resource
from pocketkube.api.storage.metadata import timestamp

Obj = dict[str, Any]
MAX_UPDATERS = 10
ANCIENT = "ancient-changes"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NEVER_OWNED: Paths = {
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
}


@dataclass(frozen=True, slots=True)
class Manager:
    """What makes two entries the same: appliers are one over all versions, updaters are not."""

    name: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        described = f'"{self.name}"'
        if self.subresource:
            described += f' with subresource "{self.subresource}"'
        return f"{described} using {self.api_version}" if self.operation == "Update" else described


@dataclass(slots=True)
class _Entry:
    """What one manager manages, in the form of the wire."""

    fields: Tree
    api_version: str
    time: str | None = None

    @property
    def paths(self) -> Paths:
        return field_sets.from_fields(self.fields)

    def take(self, paths: Paths) -> None:
        self.fields = field_set_encoding.with_paths(self.fields, paths)

    def lose(self, paths: Paths) -> None:
        self.fields = field_set_encoding.without_paths(self.fields, paths)


@dataclass(slots=True)
class _Managed:
    """All entries of one object."""

    entries: dict[Manager, _Entry] = field(default_factory=dict)

    def encode(self) -> list[Obj]:
        encoded = []
        for manager, entry in self.entries.items():
            found: Obj = {
                "manager": manager.name,
                "operation": manager.operation,
                "apiVersion": entry.api_version,
                "time": entry.time,
                "fieldsType": "FieldsV1",
                "fieldsV1": entry.fields,
                "subresource": manager.subresource,
            }
            encoded.append({key: value for key, value in found.items() if value not in ("", None)})
        encoded.sort(
            key=lambda each: (
                each["operation"],
                each.get("time", ""),
                each.get("manager", ""),
                each["apiVersion"],
                each.get("subresource", ""),
            )
        )
        return encoded

    def owned(self) -> Paths:
        return set().union(*(entry.paths for entry in self.entries.values())) if self.entries else set()

    def release(self, taken: Paths, gone: Paths, *, keeper: Manager | None = None) -> None:
        """Everybody loses what somebody else took, and what is gone."""
        lost = taken | gone
        if not lost:
            return
        for manager in list(self.entries):
            if manager == keeper:
                continue
            entry = self.entries[manager]
            entry.lose(lost)
            if not entry.fields:
                del self.entries[manager]


def on_create(resource: Resource, obj: Obj, manager: str, subresource: str, now: datetime) -> None:
    """A new object: its maker manages all of it."""
    obj["metadata"].pop("managedFields", None)
    try:
        fields = field_set_encoding.of_new(merge_types.of_resource(resource), obj)
    except PatchError:  # lists that cannot be told apart: nobody can be said to manage anything
        return
    entry = _Entry(fields, resource.api_version, timestamp(now))
    entry.lose(_NEVER_OWNED)
    if "status" in resource.subresources:
        entry.fields.pop("f:status", None)
    if entry.fields:
        who = Manager(manager, "Update", resource.api_version, subresource)
        obj["metadata"]["managedFields"] = _Managed({who: entry}).encode()


def on_update(resource: Resource, new: Obj, old: Obj, manager: str, subresource: str, now: datetime) -> None:
    """Whoever changes a field manages it. A client may also write the list itself, or reset it."""
    given = new["metadata"].get("managedFields")
    if subresource or given is None or given == old["metadata"].get("managedFields"):
        managed = _decode(old["metadata"].get("managedFields"))
    elif given in ([], [{}]):
        managed = _Managed()
    else:
        managed = _decode(given, checked=False)
        managed = managed if managed.entries else _decode(old["metadata"].get("managedFields"))
    _update(resource, new, old, managed, manager, subresource, now)


def applied(
    resource: Resource, live: Obj | None, config: Obj, manager: str, subresource: str, now: datetime, *, force: bool
) -> Obj:
    """The object after an apply, entries included; raises ApiStatus 409 for conflicts."""
    node = merge_types.of_resource(resource)
    who = Manager(manager, "Apply", subresource=subresource)
    before = {key: value for key, value in (live or {}).items() if key != "metadata"}
    before["metadata"] = {k: v for k, v in ((live or {}).get("metadata") or {}).items() if k != "managedFields"}
    managed = _decode(((live or {}).get("metadata") or {}).get("managedFields"))
    previous = managed.entries.get(who)
    last = previous.paths if previous else set()
    wanted = _writable(resource, field_sets.of_object(node, config), subresource)
    managed.entries[who] = _Entry(field_sets.to_fields(wanted), resource.api_version, timestamp(now))
    result = server_side_apply.prune(node, server_side_apply.merge(node, before, config), last, managed.owned())
    difference = _filtered(resource, field_sets.compare(node, before, result), subresource)
    if not force:
        _refuse_conflicts(resource, managed, who, difference.added | difference.modified, live, manager)
    managed.release(difference.added | difference.modified, set(), keeper=who)
    managed.release(set(), difference.removed)
    entry = managed.entries.get(who)
    if entry is not None:
        entry.lose(_NEVER_OWNED)
        if previous and previous.fields == entry.fields and not _any(difference):
            entry.time = previous.time
        if not entry.fields:
            del managed.entries[who]
    result.setdefault("metadata", {})
    _refresh_last_applied(result, config, manager)
    if managed.entries:
        result["metadata"]["managedFields"] = managed.encode()
    return result


def forget_time_of_no_change(new: Obj, old: Obj) -> None:
    """A write that changed nothing must not look like a change because of its time."""
    ours, theirs = new["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if ours == theirs or ours is None or theirs is None or len(ours) != len(theirs):
        return
    if _timeless(ours) != _timeless(theirs):
        return
    if {**new, "metadata": {**new["metadata"], "managedFields": None}} == {
        **old,
        "metadata": {**old["metadata"], "managedFields": None},
    }:
        new["metadata"]["managedFields"] = theirs


def _update(
    resource: Resource, new: Obj, old: Obj, managed: _Managed, manager: str, subresource: str, now: datetime
) -> None:
    node = merge_types.of_resource(resource)
    try:
        difference = _filtered(resource, field_sets.compare(node, _bare(old), _bare(new)), subresource)
    except PatchError:  # lists that cannot be told apart: nobody can be said to manage anything
        new["metadata"].pop("managedFields", None)
        return
    taken = (difference.added | difference.modified) - _NEVER_OWNED
    managed.release(difference.added | difference.modified, difference.removed)
    if taken:
        who = Manager(manager, "Update", resource.api_version, subresource)
        entry = managed.entries.setdefault(who, _Entry({}, resource.api_version))
        entry.take(taken)
        entry.time = timestamp(now)
        _cap(managed)
    if managed.entries:
        new["metadata"]["managedFields"] = managed.encode()
    else:
        new["metadata"].pop("managedFields", None)


def _bare(obj: Obj) -> Obj:
    if not obj:
        return obj
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}


def _decode(entries: Any, *, checked: bool = True) -> _Managed:
    """The entries of an object. Those that a client wrote may be anything: what cannot be read counts as none."""
    managed = _Managed()
    for each in entries if isinstance(entries, list) else []:
        try:
            fields = each.get("fieldsV1") or {}
            if not checked:
                field_sets.from_fields(fields)
            operation = each["operation"]
        except (PatchError, KeyError, AttributeError, RecursionError):
            return _Managed()
        if operation not in ("Apply", "Update") or each.get("fieldsType", "FieldsV1") != "FieldsV1":
            return _Managed()
        version = each.get("apiVersion", "")
        who = Manager(
            each.get("manager", ""), operation, "" if operation == "Apply" else version, each.get("subresource", "")
        )
        managed.entries[who] = _Entry(fields, version, each.get("time"))
    return managed


def _writable(resource: Resource, paths: Paths, subresource: str) -> Paths:
    """Only what the endpoint can write can be managed through it."""
    if "status" not in resource.subresources:
        return paths
    if subresource == "status":
        return {path for path in paths if path[0] == "f:status"}
    return {path for path in paths if path[0] != "f:status"}


def _filtered(resource: Resource, found: field_sets.Difference, subresource: str) -> field_sets.Difference:
    if subresource:
        return found
    return field_sets.Difference(
        _writable(resource, found.added, subresource),
        _writable(resource, found.modified, subresource),
        _writable(resource, found.removed, subresource),
    )


def _refuse_conflicts(
    resource: Resource, managed: _Managed, who: Manager, changed: Paths, live: Obj | None, manager: str
) -> None:
    conflicts = [
        (other, path)
        for other, entry in managed.entries.items()
        if other != who
        for path in sorted(entry.paths & changed)
    ]
    conflicts.sort(key=lambda each: str(each[0]))
    if conflicts and manager == "kubectl" and live is not None:
        mine = _last_applied_paths(resource, live)
        conflicts = [(other, path) for other, path in conflicts if path not in mine]
    if not conflicts:
        return
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {other}", "field": field_sets.text(path)}
        for other, path in conflicts
    ]
    raise status.ApiStatus(409, "Conflict", _conflict_message(conflicts), {"causes": causes})


def _conflict_message(conflicts: list[tuple[Manager, field_sets.Path]]) -> str:
    if len(conflicts) == 1:
        other, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {other}: {field_sets.text(path)}"
    lines = []
    of_manager: dict[Manager, list[str]] = {}
    for other, path in conflicts:
        of_manager.setdefault(other, []).append(f"- {field_sets.text(path)}")
    for manager in sorted(of_manager, key=str):
        lines += [f"conflicts with {manager}:", *of_manager[manager]]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _last_applied_paths(resource: Resource, live: Obj) -> Paths:
    """What kubectl's client-side apply set and nobody changed since: kubectl may take it over without conflict."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    node = merge_types.of_resource(resource)
    try:
        config = msgspec.json.decode(text or "")
        if not isinstance(config, dict) or config.get("apiVersion") != resource.api_version:
            return set()
        difference = field_sets.compare(node, config, live)
        return field_sets.of_object(node, config) - difference.added - difference.modified - difference.removed
    except (msgspec.DecodeError, PatchError):
        return set()


def _refresh_last_applied(result: Obj, config: Obj, manager: str) -> None:
    annotations = result["metadata"].get("annotations") or {}
    if manager != "kubectl" or not annotations.get(LAST_APPLIED):
        return
    meta = dict(config.get("metadata") or {})
    if meta.get("annotations"):
        meta["annotations"] = {k: v for k, v in meta["annotations"].items() if k != LAST_APPLIED}
    text = msgspec.json.encode({**config, "metadata": meta}, order="sorted").decode() + "\n"
    result["metadata"]["annotations"] = {**annotations, LAST_APPLIED: text}


def _cap(managed: _Managed) -> None:
    """Too many updaters: the oldest are merged into one entry per version."""
    updaters = [manager for manager in managed.entries if manager.operation == "Update"]
    if len(updaters) <= MAX_UPDATERS:
        return
    updaters.sort(key=lambda each: (managed.entries[each].time or "", str(each)))
    surplus = len(updaters) - MAX_UPDATERS
    for manager in updaters[: surplus + 1]:
        entry = managed.entries.pop(manager)
        bucket = Manager(ANCIENT, "Update", entry.api_version)
        into = managed.entries.setdefault(bucket, _Entry({}, entry.api_version))
        into.take(entry.paths)
        into.time = max(into.time or "", entry.time or "") or None


def _any(difference: field_sets.Difference) -> bool:
    return bool(difference.added or difference.modified or difference.removed)


def _timeless(entries: list[Obj]) -> list[Obj]:
    return [{key: value for key, value in entry.items() if key != "time"} for entry in entries]
