"""What every controller is given, and what every controller is: a queue of names and a reconciliation."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder, Regarding
from apportion.cluster.workqueue import WorkQueue
from pocketkube.clock import Clock
from pocketkube.informers import Informers

Json = dict[str, Any]
Key = tuple[str, str]  # namespace and name


@dataclass(frozen=True)
class Control:
    """The cluster, as controllers see it."""

    client: Client
    informers: Informers
    clock: Clock


class Reconciler(ABC):
    """Brings what is there closer to what is wanted, one object at a time."""

    name = ""
    component = ""  # who the events say they are from
    workers = 4

    def __init__(self, control: Control) -> None:
        self.client = control.client
        self.informers = control.informers
        self.clock = control.clock
        self.recorder = Recorder(control.client, self.component or f"{self.name}-controller", ordered=True)
        self.queue: WorkQueue[Key] = WorkQueue(self.name, longest_backoff=10.0)

    @abstractmethod
    def subscribe(self) -> None:
        """Ask for informers and say whose changes matter; called before anything runs."""

    @abstractmethod
    async def reconcile(self, key: Key) -> float | None:
        """Do one object; the answer is when to look again, in seconds."""

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.recorder.run())
                group.create_task(self.queue.run(self._reconcile, self.workers))
        finally:
            self.queue.close()

    async def _reconcile(self, key: Key) -> float | None:
        try:
            return await self.reconcile(key)
        except errors.Forbidden as error:
            if namespace_ends(error):
                return None
            raise

    def follow(self, kind: Kind) -> None:
        """Every change of these objects is a reason to look at them."""
        self.informers.of(kind).on_change(lambda old, new: self.queue.add(key_of(_either(old, new))))

    def follow_owned(self, kind: Kind, owner: str) -> None:
        """A change of something is a reason to look at its controller of kind `owner`, before and after."""

        def changed(old: Json | None, new: Json | None) -> None:
            for obj in (old, new):
                reference = controller_of(obj) if obj is not None else None
                if obj is not None and reference is not None and reference["kind"] == owner:
                    self.queue.add((obj["metadata"]["namespace"], reference["name"]))

        self.informers.of(kind).on_change(changed)

    def follow_orphans(self, kind: Kind, owners: Kind) -> None:
        """Something without a controller may be adopted by any owner in its namespace."""

        def changed(_: Json | None, new: Json | None) -> None:
            if new is not None and controller_of(new) is None and new["metadata"].get("labels"):
                for owner in self.informers.of(owners).indexed("namespace", new["metadata"]["namespace"]):
                    self.queue.add(key_of(owner))

        self.informers.of(kind).on_change(changed)

    def say(self, kind: Kind, obj: Json, reason: str, message: str, *, warning: bool = False) -> None:
        about = about_object(kind, obj)
        if warning:
            self.recorder.warn(about, reason, message)
        else:
            self.recorder.record(about, reason, message)

    async def set_status(self, kind: Kind, obj: Json, status: Mapping[str, Any]) -> None:
        """Write a status if it differs; fields set to None are removed."""
        before = obj.get("status") or {}
        changed = {name: value for name, value in status.items() if before.get(name) != value}
        if not changed:
            return
        meta = obj["metadata"]
        try:
            patch = {"metadata": {"uid": meta["uid"]}, "status": changed}
            await self.client.patch(kind, meta["name"], patch, namespace=meta.get("namespace"), subresource="status")
        except (errors.NotFound, errors.Conflict):
            self.queue.add_after(key_of(obj), 0.1)


def key_of(obj: Json) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def controller_of(obj: Json) -> Json | None:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def about_object(kind: Kind, obj: Json) -> Regarding:
    meta = obj["metadata"]
    version = meta.get("resourceVersion", "")
    return Regarding(kind.api_version, kind.kind, meta["name"], meta.get("namespace", ""), meta["uid"], version)


def deleting(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def namespace_ends(error: errors.ApiError) -> bool:
    """Whether something could not be created because its namespace is being deleted: that is no error."""
    causes = error.details.get("causes") or [] if isinstance(error.details, dict) else []
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


def set_condition(
    conditions: Iterable[Json], kind: str, status: str, reason: str, message: str, now: str, **extra: str | int
) -> list[Json]:
    """The conditions with one of them set; its transition time moves only when its status does."""
    kept = list(conditions)
    made: Json = {"type": kind, "status": status, "reason": reason, "message": message, **extra}
    before = next((each for each in kept if each["type"] == kind), None)
    since = before["lastTransitionTime"] if before and before["status"] == status else now
    made["lastTransitionTime"] = since
    if before is None:
        return [*kept, made]
    return [made if each is before else each for each in kept]


def _either(old: Json | None, new: Json | None) -> Json:
    obj = new if new is not None else old
    assert obj is not None
    return obj
