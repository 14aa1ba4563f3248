"""Recently created pods, for the promises: also those that were created and deleted between two decisions."""

from __future__ import annotations

import time
from datetime import datetime

from apportion.admission.fallback.occupancy import devices, wants_mig
from apportion.admission.fallback.promises import Sighting, kind_of
from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.view.requests import read

REMEMBER_SECONDS = 120.0


class RecentPods:
    """Receives pods from an informer."""

    def __init__(self) -> None:
        self.sightings: dict[str, dict[PodUID, Sighting]] = {}
        self._kinds: dict[PodUID, str] = {}  # the kind of its promise
        self._gone: dict[PodUID, float] = {}  # when it was deleted

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        assert subject is not None
        uid = PodUID(subject.metadata.uid)
        if new is not None and uid not in self._kinds:
            self._remember(new)
        if new is None and uid in self._kinds:
            self._gone[uid] = time.monotonic()

    def forget_old(self) -> None:
        """Drop the memory of pods that went long ago."""
        limit = time.monotonic() - REMEMBER_SECONDS
        for uid in [uid for uid, when in self._gone.items() if when < limit]:
            del self._gone[uid]
            kind = self._kinds.pop(uid, "")
            self.sightings.get(kind, {}).pop(uid, None)
            if not self.sightings.get(kind):
                self.sightings.pop(kind, None)

    def _remember(self, pod: Pod) -> None:
        request = read(pod).request
        if request is None or not wants_mig(request):
            return
        meta = pod.metadata
        kind = kind_of(meta.namespace, request.owner or "", meta.generate_name or meta.name, devices(request))
        version = int(meta.resource_version) if meta.resource_version.isdecimal() else 0
        uid = PodUID(meta.uid)
        self._kinds[uid] = kind
        self.sightings.setdefault(kind, {})[uid] = Sighting(version, _seconds(meta.creation_timestamp))


def _seconds(timestamp: str | None) -> float:
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0
