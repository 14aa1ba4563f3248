"""Warns about annotations of pods that the driver cannot read: it goes on without them, and nobody would know why."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from apportion.apis.identities import PodUID
from apportion.cluster.events import Recorder, Regarding
from apportion.node.hardware.partitioner import GpuUser

log = logging.getLogger(__name__)

INVALID = "InvalidAnnotation"


class AnnotationProblems:
    """Each pod gets a warning once, and another one if the value is replaced by another bad one."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._told: dict[PodUID, str] = {}

    def report(self, found: Iterable[tuple[GpuUser, str]]) -> None:
        """All pods, with what is wrong; empty if nothing is."""
        problems = [(pod, problem) for pod, problem in found if problem]
        for pod, problem in problems:
            if self._told.get(pod.uid) != problem:
                log.warning("pod %s/%s: %s", pod.namespace, pod.name, problem)
                self._recorder.warn(Regarding.pod(pod.namespace, pod.name, pod.uid), INVALID, f"The {problem}.")
        self._told = {pod.uid: problem for pod, problem in problems}
