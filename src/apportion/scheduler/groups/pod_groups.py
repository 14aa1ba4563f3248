"""PodGroups that the scheduler makes: for gangs of owners, and for all groups if the Config says so. Rule Q11.

A PodGroup follows the owner of its pods, and is removed with it by the garbage collector, or when it has had no pods
for a while. Decisions do not wait for it: a pod is bound with the name of its group, which may not exist yet. What a
leader left undone is found by the next one. PodGroups of users are not changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from apportion.apis import meta, names
from apportion.apis.custom_resources import pod_groups
from apportion.apis.custom_resources.pod_groups import PodGroup
from apportion.apis.kinds import POD_GROUPS
from apportion.apis.meta import Bare
from apportion.apis.owner_kinds import grouping
from apportion.apis.request import Request
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.workqueue import WorkQueue
from apportion.scheduler.groups import group_pods
from apportion.scheduler.groups.group_pods import GroupPods
from apportion.view.groups import owned_groups
from apportion.view.groups.owned_groups import OwnedGroup
from apportion.view.view import View

log = logging.getLogger(__name__)

WORKERS = 4
STAND_BACK_SECONDS = 2.0  # the longest that writes wait for pods to be bound
LOOK_SECONDS = 0.1
AGAIN_SECONDS = 2.0  # after one was removed: its owner may be on its way out too
EMPTY_SECONDS = 60.0  # without pods, until it is removed

Json = dict[str, Any]


class PodGroups:
    """`busy` while bindings are being written; `holds` says whether the lease does."""

    def __init__(
        self,
        client: Client,
        view: View,
        stored: Informer[PodGroup],
        pods: GroupPods,
        *,
        holds: Callable[[], bool],
        busy: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._client, self._view, self._stored, self._pods = client, view, stored, pods
        self._holds, self._busy, self._now = holds, busy, now
        self._busy_since: float | None = None
        self._empty_since: dict[str, float] = {}
        self._queue: WorkQueue[str] = WorkQueue("PodGroups")
        view.groups.on_change(self._group_changed)
        view.grouper_config.on_change(self._config_changed)
        stored.on_change(self._stored_changed)

    async def run(self) -> None:
        """Work until cancelled; the informers must have synced."""
        await self._queue.run(self._reconcile, WORKERS)

    def name_of(self, request: Request) -> str | None:
        """The PodGroup that a pod names from its binding on; None if it has none, or names it already."""
        pod = self._view.pods.get(request.uid)
        if pod is None or names.POD_GROUP in pod.metadata.annotations or not self._stored.has_synced:
            return None
        if request.group is None:
            every = self._view.grouper_config.every_pod
            return grouping.single_group_name(request.name, request.uid) if every else None
        if self._view.groups.is_of_user(request.group_key):
            return None
        exists = self._stored.get(request.group, request.namespace) is not None
        return request.group if exists or self._is_made_for(request.group_key) else None

    def _is_made_for(self, key: str) -> bool:
        """Looked up, not worked out: it is asked for every pod that comes."""
        if self._view.grouper_config.every_pod:
            return True
        gang = self._view.fleet.gangs.get(key)
        return gang is not None and (gang.minimum > 1 or bool(gang.subgroups))

    def _group_changed(self, key: str) -> None:
        if self._is_made_for(key) or self._pods.group(key) is not None:
            self._queue.add(key)

    def _config_changed(self) -> None:
        if self._view.grouper_config.every_pod:
            for key in self._view.groups.members.groups():
                self._queue.add(key)

    def _stored_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        subject = new or old
        if subject is None or not pod_groups.is_managed(subject):
            return
        key = group_pods.key_of(subject)
        if new is None:
            self._queue.add_after(key, AGAIN_SECONDS)
        elif old is None or old.metadata.generation != new.metadata.generation or old.metadata != new.metadata:
            self._queue.add(key)

    async def _reconcile(self, key: str) -> float | None:
        await self._stand_back()
        if not self._holds() or not self._stored.has_synced:
            return AGAIN_SECONDS
        wanted = owned_groups.owned_group(self._view.groups, self._view.pods, key)
        if wanted is None:
            return await self._remove_empty(key)
        self._empty_since.pop(key, None)
        stored = self._stored.get(wanted.name, wanted.namespace)
        if stored is None:
            return await self._create(wanted) if self._is_made_for(key) else None
        if pod_groups.is_managed(stored) and not stored.metadata.deleting and not _same(stored, wanted):
            await self._change(stored, wanted)
        return None

    async def _stand_back(self) -> None:
        while self._busy():
            now = self._now()
            self._busy_since = now if self._busy_since is None else self._busy_since
            if now - self._busy_since >= STAND_BACK_SECONDS:
                return
            await asyncio.sleep(LOOK_SECONDS)
        self._busy_since = None

    async def _create(self, wanted: OwnedGroup) -> float | None:
        try:
            await self._client.create(POD_GROUPS, _body(wanted), into=Bare)
        except errors.AlreadyExists:  # the informer will show it
            return AGAIN_SECONDS
        except (errors.NotFound, errors.Invalid) as error:  # its namespace is gone, or it has too many subgroups
            log.warning("PodGroup %s/%s cannot be created: %s", wanted.namespace, wanted.name, error)
            return None
        log.info("PodGroup %s/%s created: minMember %d", wanted.namespace, wanted.name, wanted.minimum)
        return None

    async def _change(self, stored: PodGroup, wanted: OwnedGroup) -> None:
        body = _body(wanted)
        changes = {key: body["metadata"][key] for key in ("labels", "ownerReferences")}
        patch = {"metadata": {"uid": stored.metadata.uid, **changes}, "spec": body["spec"]}
        try:
            await self._client.patch(POD_GROUPS, wanted.name, patch, namespace=wanted.namespace)
        except (errors.NotFound, errors.Conflict):  # gone, or another one of its name: the informer will show it
            return
        except errors.Invalid as error:
            log.warning("PodGroup %s/%s cannot be changed: %s", wanted.namespace, wanted.name, error)
            return
        log.info("PodGroup %s/%s changed: minMember %d", wanted.namespace, wanted.name, wanted.minimum)

    async def _remove_empty(self, key: str) -> float | None:
        stored = self._pods.group(key)
        if stored is None or not pod_groups.is_managed(stored) or stored.metadata.deleting or self._pods.of(key):
            self._empty_since.pop(key, None)
            return None
        left = self._empty_since.setdefault(key, self._now()) + EMPTY_SECONDS - self._now()
        if left > 0:
            return left
        del self._empty_since[key]
        try:
            await self._client.delete(
                POD_GROUPS, stored.metadata.name, namespace=stored.metadata.namespace, uid=stored.metadata.uid
            )
        except (errors.NotFound, errors.Conflict):
            return None
        log.info("PodGroup %s removed: it has no pods", key)
        return None


def _same(stored: PodGroup, wanted: OwnedGroup) -> bool:
    spec = stored.spec
    return (
        (spec.min_member, spec.queue, spec.priority_class_name, spec.preemptibility)
        == (wanted.minimum, wanted.queue, wanted.priority_class, wanted.preemptibility)
        and [(each.name, each.min_member) for each in spec.sub_groups]
        == [(each.name, each.minimum) for each in wanted.subgroups]
        and [each.uid for each in stored.metadata.owner_references] == [wanted.owner.uid]
    )


def _body(wanted: OwnedGroup) -> Json:
    return {
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY_SCHEDULER},
            "ownerReferences": [meta.to_wire(wanted.owner)],
        },
        "spec": {
            "minMember": wanted.minimum,
            "queue": wanted.queue,
            "priorityClassName": wanted.priority_class,
            "preemptibility": wanted.preemptibility,
            "subGroups": [{"name": each.name, "minMember": each.minimum} for each in wanted.subgroups],
        },
    }
