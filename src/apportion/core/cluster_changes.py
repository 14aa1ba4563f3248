"""Changes in a cluster: those that can matter to pending pods, and those that are only displayed."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from apportion.apis.identities import NO_NODE, NO_POD, NodeName, PodUID


class Happened(Enum):
    SLICE_FREED = auto()
    SLICE_CAME = auto()  # or is being freed from now on
    POD_GONE = auto()
    POD_CAME = auto()
    NODE_CHANGED = auto()
    STORAGE_CHANGED = auto()
    NAMESPACE_CHANGED = auto()  # its labels
    QUEUE_CHANGED = auto()  # a queue, or a group of pods besides its pods
    DISPLAY_CHANGED = auto()  # who is pending, states of claims and pods, which of equal GPUs a pod has: no capacity
    EVERYTHING = auto()  # the reader missed changes


class Change(NamedTuple):
    """`pod` is the uid whose slice or pod it was."""

    kind: Happened
    node: NodeName = NO_NODE
    pod: PodUID = NO_POD
