"""Writes the status of every PodGroup, and its events.

Groups that have changed are looked at once a second, and only what differs is written. The condition BelowMinimum is
also what the next leader knows from since when a group runs without its minimum.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from apportion.apis import meta
from apportion.apis.custom_resources.pod_groups import PodGroup
from apportion.apis.kinds import POD_GROUPS
from apportion.apis.pods import Pod
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.events import Recorder, Regarding
from apportion.cluster.informer import Informer
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from apportion.scheduler.backlog import Backlog, Stage
from apportion.scheduler.groups import group_pods
from apportion.scheduler.groups.group_pods import GroupPods
from apportion.scheduler.groups.status_content import GroupEvent, StatusContent
from apportion.view.view import View

log = logging.getLogger(__name__)

PASS_SECONDS = 1.0  # between two looks at what has changed
MOST_WRITES = 50  # in one
BETWEEN_WRITES_SECONDS = 3.0  # of one status

Json = dict[str, Any]


class PodGroupStatuses:
    """Written by the leader; `holds` says whether the lease does."""

    def __init__(
        self,
        client: Client,
        view: View,
        stored: Informer[PodGroup],
        pods: GroupPods,
        backlog: Backlog,
        content: StatusContent,
        recorder: Recorder,
        *,
        holds: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._client, self._stored, self._pods, self._backlog = client, stored, pods, backlog
        self._content, self._recorder = content, recorder
        self._holds, self._now = holds, now
        self._changed: dict[str, None] = {}  # keys of groups
        self._refusals: dict[str, Refusal] = {}  # what was looked at last
        self._not_before: dict[str, float] = {}
        self._told: dict[str, tuple[GroupEvent, ...]] = {}
        view.groups.on_change(self._group_changed)
        stored.on_change(self._stored_changed)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """To be told of after the view was."""
        subject = new or old
        assert subject is not None
        if old is not None and new is not None and _same(old, new):
            return
        key = self._pods.key_of_pod(subject)
        if key is not None:
            self._group_changed(key)

    async def run(self) -> None:
        """Work until cancelled; the informers must have synced."""
        while True:
            await asyncio.sleep(PASS_SECONDS)
            self._note_refusals()
            await self._write_changed()

    def _group_changed(self, key: str) -> None:
        if self._pods.group(key) is not None:
            self._changed[key] = None

    def _stored_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        subject = new or old
        assert subject is not None
        key = group_pods.key_of(subject)
        if new is not None:
            self._changed[key] = None
            return
        for known in (self._changed, self._refusals, self._not_before, self._told):
            known.pop(key, None)
        self._content.forget(key)

    def _note_refusals(self) -> None:
        """Groups that wait for another reason than before. Nobody tells of these: reasons are worked out at leisure."""
        for group in self._stored:
            key = group_pods.key_of(group)
            refusal = self._refusal(key)
            if refusal is not self._refusals.get(key):
                self._changed[key] = None

    def _refusal(self, key: str) -> Refusal | None:
        """Why the group waits; None if it does not wait, or the reason is not known yet."""
        entry = self._backlog.get(key)
        if entry is None or entry.stage is not Stage.PARKED:
            return None
        refusal = self._backlog.refusal_of(entry.alike)
        return refusal if refusal is not None and refusal.code is not Code.NOT_PLACED else None

    async def _write_changed(self) -> None:
        written, now = 0, self._now()
        for key in [key for key in self._changed if self._not_before.get(key, 0.0) <= now]:
            if written >= MOST_WRITES or not self._holds():
                return
            self._changed.pop(key, None)
            group = self._pods.group(key)
            if group is not None:
                written += await self._write(key, group)

    async def _write(self, key: str, group: PodGroup) -> bool:
        """True if there was something to write."""
        refusal = self._refusal(key)
        if refusal is None:
            self._refusals.pop(key, None)
        else:
            self._refusals[key] = refusal
        content = self._content.of(group, refusal)
        if content.unsettled:
            self._changed[key] = None
        self._tell(key, group, content.events)
        if _plain(content.status) == _plain(meta.to_wire(group.status)):
            return False
        self._not_before[key] = self._now() + BETWEEN_WRITES_SECONDS
        about = group.metadata
        patch = {"metadata": {"uid": about.uid}, "status": content.status}
        try:
            await self._client.patch(POD_GROUPS, about.name, patch, namespace=about.namespace, subresource="status")
        except (errors.NotFound, errors.Conflict):  # gone, or another one of its name
            return True
        except errors.ClusterError as error:
            log.warning("status of PodGroup %s/%s: %s", about.namespace, about.name, error)
            self._changed[key] = None
        return True

    def _tell(self, key: str, group: PodGroup, events: tuple[GroupEvent, ...]) -> None:
        for event in events:
            if event not in self._told.get(key, ()):
                self._recorder.warn(regarding(group), *event)
        if events:
            self._told[key] = events


def regarding(group: PodGroup) -> Regarding:
    about = group.metadata
    return Regarding(POD_GROUPS.api_version, POD_GROUPS.kind, about.name, about.namespace, about.uid)


def _same(old: Pod, new: Pod) -> bool:
    return (old.status.phase, old.spec.node_name, old.metadata.deleting) == (
        new.status.phase,
        new.spec.node_name,
        new.metadata.deleting,
    )


def _plain(status: Json) -> Json:
    """Without what is empty, so that two that say the same are equal."""
    return {
        key: _plain(value) if isinstance(value, dict) else value
        for key, value in status.items()
        if value not in (0, "", [], {}, None)
    }
