"""Pods that nobody runs: deleted before they had a node, and too many that have ended."""

from __future__ import annotations

from apportion.apis.kinds import PODS
from apportion.cluster import errors
from pocketkube import pod_status
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Json, Key, Reconciler, deleting

KEPT = 12_500


class PodGarbageCollector(Reconciler):
    name = "podgc"
    component = "pod-garbage-collector"
    workers = 1

    def subscribe(self) -> None:
        def changed(_: Json | None, new: Json | None) -> None:
            if new is not None and (_unscheduled_end(new) or pod_facts.terminal(new)):
                self.queue.add((new["metadata"]["namespace"], new["metadata"]["name"]))

        self.informers.of(PODS).on_change(changed)

    async def reconcile(self, key: Key) -> float | None:
        pod = self.informers.of(PODS).get(key[1], key[0])
        if pod is None:
            return None
        if _unscheduled_end(pod):
            await self._fail(pod)
        elif len(self.informers.of(PODS)) > KEPT:
            await self._remove_oldest()
        return None

    async def _fail(self, pod: Json) -> None:
        """A finalizer holds it: whoever set that must see that the pod is over."""
        if not pod_facts.terminal(pod):
            try:
                await pod_status.merge(self.client, pod, {"phase": "Failed"})
            except (errors.NotFound, errors.Conflict):
                return
        await self._remove(pod)

    async def _remove_oldest(self) -> None:
        ended = sorted((pod for pod in self.informers.of(PODS) if pod_facts.terminal(pod)), key=pod_facts.created)
        for pod in ended[: max(0, len(ended) - KEPT)]:
            await self._remove(pod)

    async def _remove(self, pod: Json) -> None:
        meta = pod["metadata"]
        try:
            await self.client.delete(PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], grace=0)
        except (errors.NotFound, errors.Conflict):
            return


def _unscheduled_end(pod: Json) -> bool:
    return deleting(pod) and not pod["spec"].get("nodeName")
