"""Priority classes, and which pods can be preempted. Rule Q05."""

from __future__ import annotations

from typing import Literal

import msgspec

from apportion.apis.meta import ObjectMeta, Wire

TRAIN, BUILD_PREEMPTIBLE, BUILD, INFERENCE = "train", "build-preemptible", "build", "inference"
PRIORITY_CLASSES = {TRAIN: 50, BUILD_PREEMPTIBLE: 75, BUILD: 100, INFERENCE: 125}
"""The classes that are installed (manifests/04-priority-classes.yaml)."""
DEFAULT_PRIORITY = PRIORITY_CLASSES[TRAIN]
"""The priority of a pod without a priority class."""
NON_PREEMPTIBLE_PRIORITY = 100
"""From here on, pods are not preemptible unless they say otherwise."""

PREEMPTIBLE: Literal["preemptible"] = "preemptible"
NON_PREEMPTIBLE: Literal["non-preemptible"] = "non-preemptible"
Preemptibility = Literal["", "preemptible", "non-preemptible"]
"""What an owner, a pod or a PodGroup says; empty: its priority decides."""


class PriorityClass(Wire):
    """For reading: its value."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    value: int = 0


def is_preemptible(priority: int, stated: str = "") -> bool:
    """A value that is neither of the two words counts as not stated."""
    if stated in (PREEMPTIBLE, NON_PREEMPTIBLE):
        return stated == PREEMPTIBLE
    return priority < NON_PREEMPTIBLE_PRIORITY
