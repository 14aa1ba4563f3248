"""Creating and deleting a set of pods, with the events and expectations that go with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from apportion.apis.kinds import PODS, Kind
from apportion.cluster import errors
from apportion.cluster.events import Recorder
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Control, Key, about_object, namespace_ends
from pocketkube.controllers.workloads.expectations import Expectations

Json = dict[str, Any]
AT_ONCE = 16
MOST_PER_SYNC = 500  # pods that one reconciliation creates or deletes, as in kube-controller-manager
Tell = Callable[[Json, Json, str], str]  # owner, pod, "create" or "delete" -> the text of the event


class PodSet:
    """Writes pods for controllers of one kind."""

    def __init__(self, control: Control, kind: Kind, recorder: Recorder, *, tell: Tell | None = None) -> None:
        self._tell = tell or _told
        self._client = control.client
        self._informer = control.informers.of(PODS)
        self._recorder = recorder
        self._kind = kind
        self.expectations = Expectations(control.clock)

    async def create(self, key: Key, owner: Json, bodies: Iterable[Json]) -> None:
        """Create pods, a few at once and not more than a number; the first failure is reported and raised."""
        waiting = islice(bodies, MOST_PER_SYNC)
        batch = 1
        while now := list(islice(waiting, batch)):
            results = await asyncio.gather(*(self._create(key, owner, body) for body in now), return_exceptions=True)
            failed = [result for result in results if isinstance(result, BaseException)]
            if failed:
                raise failed[0]
            batch = min(batch * 2, AT_ONCE)

    async def delete(self, key: Key, owner: Json, victims: Iterable[Json]) -> None:
        waiting = islice(victims, MOST_PER_SYNC)
        while now := list(islice(waiting, AT_ONCE)):
            await asyncio.gather(*(self._delete(key, owner, victim) for victim in now))

    async def _create(self, key: Key, owner: Json, body: Json) -> None:
        try:
            made = await self._client.create(PODS, body)
        except errors.AlreadyExists:
            raise
        except errors.ApiError as error:
            if not namespace_ends(error):
                self._recorder.warn(about_object(self._kind, owner), "FailedCreate", f"Error creating: {error}")
            raise
        self.expectations.created(key, self._informer, made)
        text = self._tell(owner, made, "create")
        self._recorder.record(about_object(self._kind, owner), "SuccessfulCreate", text)

    async def _delete(self, key: Key, owner: Json, pod: Json) -> None:
        meta = pod["metadata"]
        try:
            await self._client.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"])
        except (errors.NotFound, errors.Conflict):
            return
        self.expectations.removed(key, self._informer, pod)
        text = self._tell(owner, pod, "delete")
        self._recorder.record(about_object(self._kind, owner), "SuccessfulDelete", text)


def _told(_: Json, pod: Json, deed: str) -> str:
    return f"{deed.capitalize()}d pod: {pod['metadata']['name']}"


def least_wanted(candidates: Iterable[Json]) -> list[Json]:
    """Pods in the order in which a ReplicaSet gives them up."""
    found = list(candidates)
    per_node: dict[str, int] = {}
    for pod in found:
        node = pod["spec"].get("nodeName", "")
        per_node[node] = per_node.get(node, 0) + 1

    def rank(pod: Json) -> tuple[Any, ...]:
        node = pod["spec"].get("nodeName", "")
        return (
            bool(node),
            {"Pending": 0, "Unknown": 1}.get(pod_facts.phase(pod), 2),
            pod_facts.ready(pod),
            _deletion_cost(pod),
            -per_node[node],
            -pod_facts.ready_since(pod),
            -pod_facts.restarts(pod),
            -pod_facts.created(pod),
            pod["metadata"]["name"],
        )

    return sorted(found, key=rank)


def _deletion_cost(pod: Json) -> int:
    text = (pod["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "0")
    try:
        return int(text)
    except ValueError:
        return 0
