"""The age of pods among all that could be evicted, kept up to date as they come and go."""

from __future__ import annotations

from collections.abc import Collection

from apportion.apis.identities import PodUID
from apportion.core.evictions.running_group import Birth, RunningPod


class PodAges:
    """The newest pod has the lowest `age`; numbers say nothing but the order."""

    def __init__(self) -> None:
        self.pods: dict[PodUID, RunningPod] = {}
        self._by_birth: list[tuple[Birth, RunningPod]] = []  # the oldest first

    def change(self, gone: Collection[RunningPod], fresh: Collection[RunningPod]) -> None:
        for pod in gone:
            if self.pods.get(pod.uid) is pod:  # it may be in another group already
                del self.pods[pod.uid]
        if gone:
            self._by_birth = [entry for entry in self._by_birth if self.pods.get(entry[1].uid) is entry[1]]
        self.pods |= {pod.uid: pod for pod in fresh}
        added = sorted((pod.birth, pod) for pod in fresh)
        newer = not self._by_birth or not added or self._by_birth[-1][0] < added[0][0]
        newest = self._by_birth[-1][1].age if self._by_birth else 0
        self._by_birth += added
        if newer:
            for number, (_, pod) in enumerate(added, 1):
                pod.age = newest - number
            return
        self._by_birth.sort()  # two sorted parts: as good as merging them
        for number, (_, pod) in enumerate(self._by_birth):
            pod.age = -number
