"""Creating and changing objects: the one way through which every write goes.

    decode -> defaults -> ownership of fields -> preparation -> mutating admission -> validation
           -> validating admission -> store

An update is a function of the current object (`Change`), so that replace, all patches and subresources
share this path; it is repeated on the fresh object when somebody else was quicker and the caller did not
insist on a resourceVersion. Deletions are in `deletion`, reads in `listing` and `watching`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from pocketkube.api import limits, status
from pocketkube.api.content.conversion import Versions, bucket_of
from pocketkube.api.content.object_content import Content
from pocketkube.api.patches import managed_fields
from pocketkube.api.registry import Resource
from pocketkube.api.request_attributes import Attributes, Operation, User
from pocketkube.api.storage import metadata, store
from pocketkube.api.storage.store import Store, Stored
from pocketkube.api.storage.strategies import Strategies
from pocketkube.api.turns import Turns
from pocketkube.api.validation import problems

Obj = dict[str, Any]
ATTEMPTS = 5
NAME_ATTEMPTS = 8
_WRONG_SCALAR = re.compile(r"json: cannot unmarshal \w+ into Go struct field \S+ of type (string|bool|int32|int64)")
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions", "CONNECT": ""}


class Admission(Protocol):
    """What a write passes before it is stored: plugins and webhooks."""

    async def mutate(self, attrs: Attributes, obj: Obj) -> Obj: ...

    async def validate(self, attrs: Attributes, obj: Obj | None, old: Obj | None) -> None: ...


class AdmittedForm(Protocol):
    """What admission sees of an object instead of the object itself: the Scale of a Deployment."""

    def shown(self, obj: Obj) -> Obj: ...

    def taken(self, obj: Obj, shown: Obj) -> Obj: ...


@dataclass(slots=True)
class Options:
    """Query parameters of a write, and who writes."""

    user: User
    dry_run: bool = False
    field_manager: str = ""
    explicit_manager: bool = False
    field_validation: str = "Warn"
    force: bool = False
    raw: Obj = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    size: int = 0  # bytes of the request


@dataclass(frozen=True, slots=True)
class Target:
    """The object a write is about."""

    resource: Resource
    namespace: str
    name: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome: the object in the version of the request, and whether it is new."""

    obj: Obj
    created: bool = False
    size: int = 0  # bytes of the object, or of the request if it was not stored


@dataclass(frozen=True, slots=True)
class Update:
    """How an update makes the new object from the current one.

    `change` gets a copy that it may alter. `created` makes the object when there is none (apply), else
    a missing object is an error. `applied` is set by server-side apply, which settles ownership itself.
    `internal` marks the server's own writes on behalf of a subresource (binding): admission has seen the
    subresource's body, and the rules for users do not apply. `admitted` is the form in which admission sees the object
    where that is not the object itself. `replaced`: the whole object was sent, and
    some kinds insist that it says which version it replaces. `patched`: what cannot be decoded is the
    patch's fault; `strategic` is the patch itself where refusals show it instead of the object.
    """

    change: Callable[[Obj], Obj]
    create: Callable[[], Obj] | None = None
    applied: bool = False
    internal: bool = False
    admitted: AdmittedForm | None = None
    replaced: bool = False
    patched: bool = False
    strategic: bytes = b""


class Writer:
    """Creates and updates objects of all resources."""

    def __init__(
        self,
        store: Store,
        versions: Versions,
        content: Content,
        strategies: Strategies,
        admission: Admission,
        clock: metadata.Clock,
        turns: Turns,
    ) -> None:
        self._turns = turns
        self._store = store
        self._versions = versions
        self._content = content
        self._strategies = strategies
        self._admission = admission
        self._clock = clock

    async def create(self, target: Target, obj: Obj, options: Options, *, applied: bool = False) -> Written:
        resource = target.resource
        obj = await self._turns.run(options.size, self._content.decode, resource, obj, options)
        meta = obj["metadata"]
        given = bool(meta.get("name"))
        for attempt in range(NAME_ATTEMPTS):
            if not given:
                meta.pop("name", None)
            try:
                return await self._create_once(target, obj, options, applied=applied)
            except store.Exists as taken:
                if given or attempt == NAME_ATTEMPTS - 1:
                    raise status.already_exists(resource, str(taken)) from None
        raise AssertionError("the loop returns or raises")

    async def _create_once(self, target: Target, obj: Obj, options: Options, *, applied: bool) -> Written:
        resource, now = target.resource, self._clock()
        bucket = bucket_of(resource)
        if resource.namespaced:
            obj["metadata"]["namespace"] = target.namespace
        attrs = self._attributes("CREATE", target, options, str(obj["metadata"].get("name") or ""))
        await self._turns.run(options.size, self._completed, target, obj, options, applied=applied)
        # Who mutates sees what the client has sent: no uid, no status, and no name that is yet to be generated.
        obj = await self._admission.mutate(attrs, obj)
        if not obj["metadata"].get("name") and obj["metadata"].get("generateName"):
            obj["metadata"]["name"] = metadata.generate_name(obj["metadata"]["generateName"])
        attrs.name = str(obj["metadata"].get("name") or "")
        metadata.stamp_new(resource, obj, now)
        self._strategies.before_create(resource, obj)
        await self._turns.run(options.size, self._checked, resource, obj)
        await self._admission.validate(attrs, obj, None)
        self._strategies.after_check(resource, obj, None)
        name = obj["metadata"]["name"]
        namespace = target.namespace if resource.namespaced else ""
        if options.dry_run:
            if self._store.get(bucket, namespace, name) is not None:
                raise store.Exists(name)
            return Written(obj, created=True, size=options.size)
        kept = self._versions.to_storage(resource, obj)
        with _refused_when_full():
            stored = self._store.create(bucket, namespace, name, kept, most=_largest(resource))
        obj["metadata"]["resourceVersion"] = str(stored.revision)
        return Written(obj, created=True, size=len(stored.data))

    def _completed(self, target: Target, obj: Obj, options: Options, *, applied: bool) -> None:
        self._content.complete(target.resource, obj)
        if not applied:
            managed_fields.on_create(target.resource, obj, options.field_manager, target.subresource, self._clock())

    def _checked(self, resource: Resource, obj: Obj) -> None:
        self._content.complete(resource, obj)
        self._content.check(resource, obj, None)

    async def update(self, target: Target, update: Update, options: Options) -> Written:
        """Apply a change to the current object; see `Update`."""
        for attempt in range(ATTEMPTS):
            current = self._current(target)
            if current is None:
                if update.create is None:
                    raise status.not_found(target.resource, target.name)
                try:
                    made = await self._turns.run(options.size, update.create)
                    return await self.create(target, made, options, applied=update.applied)
                except status.ApiStatus as problem:
                    if problem.reason == "AlreadyExists" and attempt < ATTEMPTS - 1:
                        continue
                    raise
            try:
                return await self._update_once(target, update, options, current)
            except (store.Stale, store.Missing):
                continue
        raise status.conflict(target.resource, target.name)

    async def _update_once(self, target: Target, update: Update, options: Options, current: Stored) -> Written:
        resource, size = target.resource, max(options.size, len(current.data))
        old, new = await self._turns.run(size, self._changed, target, update, options, current)
        new = self._prepare(target, new, old)
        if not update.applied:
            manager, now = options.field_manager, self._clock()
            await self._turns.run(size, managed_fields.on_update, resource, new, old, manager, target.subresource, now)
        if update.internal:
            return self._persist(target, new, old, current, options)
        attrs = self._attributes("UPDATE", target, options, target.name)
        attrs.old = update.admitted.shown(old) if update.admitted else old
        new = self._prepare(target, await self._mutated(attrs, new, update.admitted), old)
        await self._turns.run(size, self._checked_change, target, new, old)
        await self._admission.validate(attrs, update.admitted.shown(new) if update.admitted else new, attrs.old)
        if not target.subresource:
            self._strategies.after_check(resource, new, old)
        managed_fields.forget_time_of_no_change(new, old)
        return self._persist(target, new, old, current, options)

    def _changed(self, target: Target, update: Update, options: Options, current: Stored) -> tuple[Obj, Obj]:
        """The object before and after a change."""
        resource = target.resource
        old = self._versions.from_storage(resource, current.decode())
        new = update.change(self._versions.from_storage(resource, current.decode()))
        new = self._decode_changed(resource, new, update, options)
        _check_identity(target, new, current, patched=update.patched or update.applied)
        if update.replaced and not new["metadata"].get("resourceVersion") and _insists_on_version(resource):
            raise _version_missing(target)
        self._content.complete(resource, new)
        return old, new

    def _checked_change(self, target: Target, new: Obj, old: Obj) -> None:
        self._content.complete(target.resource, new)
        if target.subresource not in ("status", "approval"):
            metadata.raise_generation(target.resource, new, old)
        self._content.check(target.resource, new, old, subresource=target.subresource)

    async def _mutated(self, attrs: Attributes, new: Obj, form: AdmittedForm | None) -> Obj:
        if form is None:
            return await self._admission.mutate(attrs, new)
        return form.taken(new, await self._admission.mutate(attrs, form.shown(new)))

    def _decode_changed(self, resource: Resource, obj: Obj, update: Update, options: Options) -> Obj:
        try:
            return self._content.decode(resource, obj, options)
        except status.ApiStatus as problem:
            if not update.patched:
                raise
            why = problem.message.partition(f"cannot be handled as a {resource.kind}: ")[2] or problem.message
            shown = msgspec.json.encode(obj).decode()
            if update.strategic:
                shown = problems.shown_as_go_does(msgspec.json.decode(update.strategic))
                why = _WRONG_SCALAR.sub(r"unrecognized type: \1", why)
            shown = msgspec.json.encode(shown).decode()
            cause = status.Cause("patch", f"Invalid value: {shown}: {why}")
            raise status.invalid(_NoKind(), "", [cause]) from problem

    def _prepare(self, target: Target, new: Obj, old: Obj) -> Obj:
        new = self._strategies.before_update(target.resource, target.subresource, new, old)
        metadata.keep_system_fields(new, old)
        return new

    def _persist(self, target: Target, new: Obj, old: Obj, current: Stored, options: Options) -> Written:
        resource, bucket = target.resource, bucket_of(target.resource)
        if options.dry_run or new == old:
            return Written(new, size=max(options.size, len(current.data)))
        namespace, name = current.key
        kept, most = self._versions.to_storage(resource, new), _largest(resource)
        with _refused_when_full():
            stored = self._store.update(bucket, namespace, name, kept, expected=current.revision, most=most)
        if _ends_now(new, old):  # the last finalizer went away: the object goes with this write
            self._store.delete(bucket, namespace, name)
        new["metadata"]["resourceVersion"] = str(stored.revision)
        return Written(new, size=len(stored.data))

    def _current(self, target: Target) -> Stored | None:
        namespace = target.namespace if target.resource.namespaced else ""
        return self._store.get(bucket_of(target.resource), namespace, target.name)

    async def admit(self, operation: Operation, target: Target, obj: Obj | None, options: Options) -> None:
        """Let admission see a request whose body is not the object itself (binding, eviction)."""
        attrs = self._attributes(operation, target, options, target.name)
        if obj is not None:
            obj = await self._admission.mutate(attrs, obj)
        await self._admission.validate(attrs, obj, None)

    def _attributes(self, operation: Operation, target: Target, options: Options, name: str) -> Attributes:
        # Namespaces lie in themselves.
        namespace = name if target.resource.model == "core_v1.Namespace" else target.namespace
        return Attributes(
            operation=operation,
            resource=target.resource,
            subresource=target.subresource,
            namespace=namespace,
            name=name,
            user=options.user,
            dry_run=options.dry_run,
            options={**options.raw, "kind": _OPTIONS[operation]},
            warnings=options.warnings,
        )


def _largest(resource: Resource) -> int:
    return limits.MAX_OBJECT if resource.custom else limits.MAX_BUILTIN_OBJECT


@contextmanager
def _refused_when_full() -> Iterator[None]:
    try:
        yield
    except store.TooLarge:
        raise status.object_too_large() from None
    except store.Full:
        raise status.store_full() from None


class _NoKind:
    """Errors about a patch name no kind."""

    group, plural, kind = "", "", ""


# Built-in kinds that, like all custom ones, do not accept a blind overwrite.
_INSISTENT = frozenset(
    {
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("policy", "poddisruptionbudgets"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("storage.k8s.io", "volumeattachments"),
    }
)


def _insists_on_version(resource: Resource) -> bool:
    return resource.custom or (resource.group, resource.plural) in _INSISTENT


def _version_missing(target: Target) -> status.ApiStatus:
    cause = status.Cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
    problem = status.invalid(target.resource, target.name, [cause])
    problem.message = f'{status.qualified(target.resource)} "{target.name}" is invalid: {cause}'
    problem.details = {**(problem.details or {}), "kind": target.resource.plural}
    return problem


def _check_identity(target: Target, new: Obj, current: Stored, *, patched: bool) -> None:
    """Name, uid and resourceVersion that the new object claims."""
    meta = new["metadata"]
    name = meta.setdefault("name", target.name)
    if name != target.name:
        raise status.bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    namespace = meta.get("namespace") or ""
    if target.resource.namespaced and namespace and namespace != target.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    revision = str(meta.get("resourceVersion") or "")
    if revision and revision != str(current.revision):
        raise status.conflict(target.resource, target.name)
    uid = meta.get("uid")
    if uid and uid != current.uid and patched:
        cause = status.Cause("metadata.uid", f'Invalid value: "{uid}": field is immutable')
        raise status.invalid(target.resource, target.name, [cause])
    if uid and uid != current.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current.uid}"
        raise status.conflict(target.resource, target.name, why)


def _ends_now(new: Obj, old: Obj) -> bool:
    meta = new["metadata"]
    return (
        bool(old["metadata"].get("deletionTimestamp"))
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
        and not _namespace_finalizers(new)
    )


def _namespace_finalizers(obj: Obj) -> bool:
    return obj.get("kind") == "Namespace" and bool((obj.get("spec") or {}).get("finalizers"))
