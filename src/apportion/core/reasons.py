"""Why a node cannot take a pod: a code with its numbers. `sentences` turns them into text."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Layer(StrEnum):
    """Where a pod is held up; the order is the order in which a pod meets them."""

    ADMISSION = "admission"
    QUEUE = "queue"
    GANG = "gang"
    NODE = "node filter"
    MEMORY = "memory"
    PLACEMENT = "placement"


class Code(StrEnum):
    # The node itself
    WRONG_NODE = "WrongNode"
    CORDONED = "Cordoned"
    TAINT = "UntoleratedTaint"
    SELECTOR = "NodeSelector"
    AFFINITY = "NodeAffinity"
    PORTS = "HostPorts"
    RESOURCE = "InsufficientResource"
    PODS = "TooManyPods"
    # Volumes
    VOLUME_NODE = "VolumeNodeAffinity"
    VOLUME_CLAIM = "VolumeClaim"
    VOLUME_BUSY = "VolumeInUse"
    VOLUME_LIMIT = "VolumeLimit"
    # Other pods
    SPREAD = "TopologySpread"
    SPREAD_LABEL = "TopologySpreadLabel"
    NEAR = "PodAffinity"
    APART = "PodAntiAffinity"
    KEPT_APART = "ExistingPodAntiAffinity"
    # GPUs
    NOT_MIG_CAPABLE = "NotMigCapable"
    AGENT_NOT_READY = "AgentNotReady"
    NO_PROFILE = "NoSuchProfile"
    NO_PLACE = "NoFreePlace"
    NO_DEVICE = "NoFreeGpu"
    NO_MEMORY = "NoFreeGpuMemory"
    LEFTOVER_CLAIMS = "LeftoverClaims"


class Reason(NamedTuple):
    """`subject` says what it is about; `need`, `free` and `total` are its numbers where it has some."""

    code: Code
    subject: str = ""
    need: int = 0
    free: int = 0
    total: int = 0


LAYERS = {
    Code.NO_PROFILE: Layer.PLACEMENT,
    Code.NO_PLACE: Layer.PLACEMENT,
    Code.NO_DEVICE: Layer.PLACEMENT,
    Code.LEFTOVER_CLAIMS: Layer.PLACEMENT,
    Code.NO_MEMORY: Layer.MEMORY,
}


def layer_of(code: Code) -> Layer:
    return LAYERS.get(code, Layer.NODE)
