"""Why a pod has to wait: one row for each reason; a new reason needs nothing else.

A row has the name of the reason, the layer that blocks the pod, the text, the changes in the cluster that can resolve
it, and what could be relaxed. Filters give a row with its numbers (`Reason`); rows about the pod as a whole have no
nodes. In the text {has}, {does} and {is_} follow the number of nodes, {pods}, {were} and {pods_are} what is needed;
{subject}, {need}, {free}, {used} and {total} are the reason's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple, Self

from apportion.core import relaxations
from apportion.core.cluster_changes import Happened
from apportion.core.relaxations import Relaxation


class Layer(StrEnum):
    """The stage that blocks a pod, in the order in which a pod passes them."""

    ADMISSION = "admission"
    QUEUE = "queue"
    GANG = "gang"
    NODE = "node filter"
    MEMORY = "memory"
    PLACEMENT = "placement"


class Scope(Enum):
    """Which change of a helpful kind counts: one on the same node, one on any node, or one of the pod's own."""

    NODE = "node"
    FLEET = "fleet"
    POD = "pod"


_NODE = frozenset({Happened.NODE_CHANGED})
_SLICES = _NODE | {Happened.SLICE_FREED}
_PODS_END = _NODE | {Happened.POD_GONE}
_PODS_COME = _NODE | {Happened.POD_CAME}
_STORAGE = _NODE | {Happened.STORAGE_CHANGED}
_NAMESPACES = frozenset({Happened.NAMESPACE_CHANGED})  # their labels select pods of an affinity term
_QUEUES = frozenset({Happened.QUEUE_CHANGED})
_ANYTHING = _SLICES | _PODS_END | _PODS_COME | _STORAGE | _NAMESPACES | _QUEUES


@dataclass(frozen=True)
class Row:
    """One reason. `partly` are other words for when some of what is needed is free; `ends_pods` if pods that end on
    the node can help; `from_attempt` if an attempt to bind the pod found it out, which no decision on the fleet can;
    `releases_claims` if the pod gives up the claims that it has; `lasting` if no change in the cluster resolves it;
    `about_room` if the node is too small or too full, and nothing else is wrong with it; `of_one` if the numbers are
    those of one GPU or node: of several nodes the largest count, and not their sum."""

    code: str
    words: str
    layer: Layer = Layer.NODE
    helped_by: frozenset[Happened] = _NODE
    scope: Scope = Scope.NODE
    relaxation: Relaxation | None = None
    ends_pods: bool = False
    partly: str = ""
    from_attempt: bool = False
    releases_claims: bool = False
    lasting: bool = False
    about_room: bool = False
    of_one: bool = False

    def said(self, subject: str = "", need: int = 0, free: int = 0, total: int = 0, *, nodes: int = 1) -> str:
        """The text, for this number of nodes."""
        one = nodes == 1
        return (self.partly if self.partly and free else self.words).format(
            has="has" if one else "have",
            does="does" if one else "do",
            is_="is" if one else "are",
            subject=subject,
            need=need,
            pods="1 pod" if need == 1 else f"{need} pods",
            were="was" if need == 1 else "were",
            pods_are="is" if need == 1 else "are",
            free=free,
            used=total - free,
            total=total,
        )


class Code(StrEnum):
    """The table."""

    row: Row

    def __new__(cls, row: Row) -> Self:
        member = str.__new__(cls, row.code)
        member._value_ = row.code
        member.row = row
        return member

    # The queue
    NO_QUEUE = Row("QueueDoesNotExist", "{subject}", Layer.QUEUE, helped_by=_QUEUES, scope=Scope.FLEET)
    NOT_A_LEAF = Row("QueueNotLeaf", "{subject}", Layer.QUEUE, helped_by=_QUEUES, scope=Scope.FLEET)
    BROKEN_QUEUE = Row("QueueUnusable", "{subject}", Layer.QUEUE, helped_by=_QUEUES, scope=Scope.FLEET)
    OVER_LIMIT = Row("OverLimit", "{subject}", Layer.QUEUE, helped_by=_QUEUES | {Happened.POD_GONE}, scope=Scope.FLEET)
    OVER_QUOTA = Row(
        "NonPreemptibleOverQuota",
        "{subject}",
        Layer.QUEUE,
        helped_by=_QUEUES | {Happened.POD_GONE},
        scope=Scope.FLEET,
    )

    # The group
    INCOMPLETE = Row(
        "GroupIncomplete",
        "{subject}",
        Layer.GANG,
        helped_by=_QUEUES,
        scope=Scope.FLEET,
    )

    TOO_LARGE = Row("GroupTooLarge", "", Layer.GANG, helped_by=_NODE | _QUEUES, scope=Scope.FLEET)

    # The node itself
    WRONG_NODE = Row("WrongNode", "{is_} not the node that the pod requires")
    CORDONED = Row(
        "Cordoned",
        "{is_} cordoned",
        relaxation=Relaxation("uncordon node {node}", relaxations.uncordoned, of_node=True),
    )
    TAINT = Row(
        "UntoleratedTaint",
        "{has} the untolerated taint {subject}",
        relaxation=Relaxation("tolerate the taint {subject}", relaxations.tolerating),
    )
    SELECTOR = Row(
        "NodeSelector",
        "{does} not have the label {subject}",
        relaxation=Relaxation("remove {subject} from the pod's node selector", relaxations.without_selector),
    )
    AFFINITY = Row(
        "NodeAffinity",
        "{does} not match the pod's node affinity",
        relaxation=Relaxation("relax the pod's required node affinity", relaxations.without_node_affinity),
    )
    PORTS = Row(
        "HostPorts",
        "{has} host port {subject} in use",
        helped_by=_PODS_END,
        relaxation=Relaxation("remove host port {subject}", relaxations.without_port),
        ends_pods=True,
    )
    RESOURCE = Row(
        "InsufficientResource",
        "{has} insufficient {subject} (needs {need}, {used} of {total} in use)",
        helped_by=_PODS_END,
        ends_pods=True,
        about_room=True,
    )
    PODS = Row("TooManyPods", "{has} the maximum number of pods", helped_by=_PODS_END, ends_pods=True)

    # Volumes
    VOLUME_NODE = Row(
        "VolumeNodeAffinity",
        "cannot access the volume of volume claim {subject}",
        helped_by=_STORAGE,
        scope=Scope.FLEET,
    )
    VOLUME_CLAIM = Row(
        "VolumeClaim",
        "cannot use volume claim {subject}, which is missing, unbound or being deleted",
        helped_by=_STORAGE,
        scope=Scope.FLEET,
    )
    VOLUME_BUSY = Row(
        "VolumeInUse",
        "cannot use volume claim {subject}, which another pod uses exclusively",
        helped_by=_STORAGE | _PODS_END,
        scope=Scope.FLEET,
    )

    # Other pods
    SPREAD = Row(
        "TopologySpread",
        "{does} not satisfy the topology spread over {subject}",
        helped_by=_PODS_END | _PODS_COME,
        scope=Scope.FLEET,
        relaxation=Relaxation("relax the pod's topology spread over {subject}", relaxations.without_spread),
        ends_pods=True,
    )
    SPREAD_LABEL = Row(
        "TopologySpreadLabel",
        "{has} no label {subject} for the topology spread",
        scope=Scope.FLEET,
        relaxation=Relaxation("relax the pod's topology spread over {subject}", relaxations.without_spread),
    )
    NEAR = Row(
        "PodAffinity",
        "{does} not match the pod's pod affinity",
        helped_by=_PODS_COME | _NAMESPACES,
        scope=Scope.FLEET,
        relaxation=Relaxation("relax the pod's required pod affinity", relaxations.without_affinity),
    )
    APART = Row(
        "PodAntiAffinity",
        "{does} not match the pod's pod anti-affinity",
        helped_by=_PODS_END | _NAMESPACES,
        scope=Scope.FLEET,
        relaxation=Relaxation("relax the pod's required pod anti-affinity", relaxations.without_anti_affinity),
        ends_pods=True,
    )
    KEPT_APART = Row(
        "ExistingPodAntiAffinity",
        "{has} pods whose anti-affinity excludes the pod",
        helped_by=_PODS_END | _NAMESPACES,
        scope=Scope.FLEET,
        ends_pods=True,
    )

    # GPUs
    NOT_MIG_CAPABLE = Row(
        "NotMigCapable",
        "{has} no label nvidia.com/mig.capable=true",
        relaxation=Relaxation("label node {node} nvidia.com/mig.capable=true", relaxations.mig_capable, of_node=True),
    )
    AGENT_NOT_READY = Row(
        "AgentNotReady",
        "{has} no ready node agent",
        relaxation=Relaxation("start the node agent on {node}", relaxations.agent_ready, of_node=True),
    )
    NO_PROFILE = Row("NoSuchProfile", "{has} no GPU with profile {subject}", Layer.PLACEMENT, about_room=True)
    NO_PLACE = Row(
        "NoFreePlace",
        "{has} no free placement ({used} of {total} placements of {subject} in use)",
        Layer.PLACEMENT,
        helped_by=_SLICES,
        ends_pods=True,
        about_room=True,
        partly="{has} no free placement for {need} x {subject} ({used} of {total} placements in use)",
    )
    NO_DEVICE = Row(
        "NoFreeGpu",
        "{has} too few free GPUs (needs {need}, {used} of {total} in use)",
        Layer.PLACEMENT,
        helped_by=_PODS_END,
        ends_pods=True,
        about_room=True,
    )
    NO_MEMORY = Row(
        "NoFreeGpuMemory",
        "{has} insufficient free memory on a single GPU"
        " (needs {need} MiB; the most free on one GPU is {free} of {total} MiB)",
        Layer.MEMORY,
        helped_by=_PODS_END,
        ends_pods=True,
        about_room=True,
        of_one=True,
    )
    NO_FRACTION = Row(
        "NoFreeGpuFraction",
        "{has} no GPU with a free fraction of {subject}",
        Layer.MEMORY,
        helped_by=_PODS_END,
        ends_pods=True,
        about_room=True,
    )
    NO_MEMORY_ON_SEVERAL = Row(
        "TooFewGpusWithFreeMemory",
        "{has} too few GPUs with {subject} free (needs {need}; on one node {free} of {total} can take it)",
        Layer.MEMORY,
        helped_by=_PODS_END,
        ends_pods=True,
        about_room=True,
        of_one=True,
    )
    NO_RESERVATION = Row(
        "NoRoomForReservationPod",
        "{has} no room for the reservation pod of another shared GPU (maximum number of pods)",
        Layer.MEMORY,
        helped_by=_PODS_END,
        ends_pods=True,
    )
    NO_SHARES = Row("GpusNotShared", "{has} no GPU that takes shares", Layer.MEMORY, helped_by=_PODS_END)
    NOT_SHAREABLE = Row("NoShareableGpu", "{has} no GPU that can be shared", about_room=True)
    MEMORY_UNKNOWN = Row(
        "GpuMemoryUnknown",
        "{has} no label {subject}, so that only fractions of the GPUs can be requested there (gpu-fraction)",
        Layer.MEMORY,
    )

    # The pod as a whole: independent of nodes
    GATED = Row("Gated", "the pod has scheduling gates: {subject}", Layer.ADMISSION, scope=Scope.POD)
    NO_SHARING = Row(
        "NoSharing",
        "GPU sharing is not enabled in this cluster;"
        " an administrator enables it with spec.admission.gpuSharing: true in the Config kai-config",
        Layer.PLACEMENT,
        scope=Scope.FLEET,
    )
    CLAIMS_LEAVING = Row(
        "ClaimsLeaving", "the previous slices of the pod are still being released", Layer.PLACEMENT, scope=Scope.POD
    )
    CLAIMS_GIVEN_UP = Row(
        "ClaimsGivenUp",
        "the claims of the pod cannot be used: {subject}",
        Layer.PLACEMENT,
        scope=Scope.POD,
        releases_claims=True,
    )
    INVALID = Row("InvalidRequest", "{subject}", Layer.ADMISSION, scope=Scope.POD, lasting=True)

    MAKING_ROOM = Row(
        "MakingRoom",
        "a place on {subject} is reserved for the pod, and {pods} that {were} evicted for it {pods_are} terminating",
        Layer.PLACEMENT,
        helped_by=_PODS_END | _SLICES | _QUEUES,
        scope=Scope.FLEET,
    )

    LIMIT_IN_USE = Row(
        "LimitInUse",
        "queue {subject} would exceed its limit: {pods} that {were} selected to be evicted {pods_are} still running",
        Layer.QUEUE,
        helped_by=_PODS_END | _QUEUES,
        scope=Scope.FLEET,
    )

    EVICTING = Row(
        "EvictionPlanned",
        "no node has room now; a place on {subject} becomes free by evicting {pods}",
        Layer.PLACEMENT,
        helped_by=_ANYTHING,
        scope=Scope.FLEET,
    )

    # Why claims are given up, besides the reasons against their node
    GPU_UNHEALTHY = Row("ClaimsGpuUnhealthy", "GPU {subject} is not healthy", Layer.PLACEMENT, scope=Scope.POD)
    GPU_NOT_IN_MIG_MODE = Row(
        "ClaimsGpuNotInMigMode", "GPU {subject} is not in MIG mode", Layer.PLACEMENT, scope=Scope.POD
    )
    GPU_IN_OTHER_USE = Row(
        "ClaimsGpuInOtherUse", "GPU {subject} is allocated whole or shared", Layer.PLACEMENT, scope=Scope.POD
    )
    ILLEGAL_PLACEMENT = Row(
        "ClaimsIllegalPlacement", "{subject} is not a legal placement on its GPU", Layer.PLACEMENT, scope=Scope.POD
    )
    NOT_REQUESTED = Row("ClaimsNotRequested", "the pod no longer requests them", Layer.PLACEMENT, scope=Scope.POD)
    NOT_TOGETHER = Row(
        "ClaimsNotTogether",
        "they are on different nodes, or on a GPU that no longer exists",
        Layer.PLACEMENT,
        scope=Scope.POD,
    )
    NODE_GONE = Row("ClaimsNodeGone", "their node no longer exists", Layer.PLACEMENT, scope=Scope.POD)
    OVERLAPPED = Row("ClaimsOverlapped", "another claim overlaps them", Layer.PLACEMENT, scope=Scope.POD)
    NOT_SUFFICIENT = Row("ClaimsNotSufficient", "they are not sufficient", Layer.PLACEMENT, scope=Scope.POD)

    # The last attempt of the scheduler
    BINDING_FAILED = Row(
        "BindingFailed",
        "binding the pod failed and will be retried: {subject}",
        Layer.PLACEMENT,
        scope=Scope.POD,
        from_attempt=True,
    )
    BINDING_GIVEN_UP = Row(
        "BindingGivenUp",
        "the claims of the pod are released after {need} failed attempts to bind it",
        Layer.PLACEMENT,
        scope=Scope.POD,
        from_attempt=True,
        releases_claims=True,
    )
    BINDING_OVERDUE = Row(
        "BindingOverdue",
        "the pod has a place, but has not been bound for more than {need} s: {subject}",
        Layer.PLACEMENT,
        scope=Scope.POD,
    )
    NO_NODES = Row("NoNodes", "", scope=Scope.FLEET)
    NOT_PLACED = Row("NotPlaced", "", Layer.PLACEMENT, helped_by=_ANYTHING, scope=Scope.FLEET)


class Reason(NamedTuple):
    """`subject` says what it is about; `need`, `free` and `total` are its numbers where it has some."""

    code: Code
    subject: str = ""
    need: int = 0
    free: int = 0
    total: int = 0

    @property
    def said(self) -> str:
        return self.code.row.said(*self[1:])
