"""Why a pod has to wait, as data: numbers per set of nodes, and the cheapest change that would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from apportion.apis import names
from apportion.apis.identities import NO_NODE, NodeName, PodUID, QueueName
from apportion.apis.request import Request
from apportion.apis.shares import Share, decimal
from apportion.core.queues.raises import Raise
from apportion.core.reasons import Code, Layer, Reason


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that are excluded for the same reason. Numbers are sums over the group, or those of one GPU or node."""

    code: Code
    subject: str
    nodes: tuple[NodeName, ...]
    need: int = 0
    free: int = 0
    total: int = 0


@dataclass(frozen=True)
class Remedy:
    """A change that would admit the pod. Kinds, cheapest first: rule (a toleration or selector), profile (something
    smaller), model, quota, free (pods to end), rule (another one to relax), add (`count` nodes). Profile and model put
    `instead` in the place of `subject`; `field` says of what, where it is not a profile. `raises` are quotas and limits
    of queues; those of another kind than quota need them besides."""

    kind: str
    subject: str = ""
    instead: str = ""
    field: str = ""
    node: NodeName = NO_NODE
    pods: tuple[str, ...] = ()
    uids: tuple[PodUID, ...] = ()
    count: int = 0
    code: Code | None = None
    raises: tuple[Raise, ...] = ()

    @property
    def changes_pod(self) -> bool:
        """It changes what the pod asks for, and nothing in the cluster."""
        if self.code is not None and self.code.row.relaxation is not None:
            return not self.code.row.relaxation.of_node
        return self.kind in {"profile", "model"}


class NoReclaim(StrEnum):
    """Why nothing is reclaimed for a pod."""

    AT_SHARE = "AtFairShare"
    NOBODY_ABOVE = "NobodyAboveFairShare"
    PROTECTED = "Protected"
    NO_ROOM = "NoRoom"  # what could be reclaimed makes no room for it


@dataclass(frozen=True)
class Standing:
    """Where the queue of a group stands in one resource. `above` are the queues from which could be reclaimed;
    `protected` counts their pods that must not be evicted, by what protects them."""

    queue: QueueName
    resource: str
    need: int
    used: int
    share: int
    quota: int
    reclaim: NoReclaim
    above: tuple[QueueName, ...] = ()
    protected: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Refusal:
    """A pod that cannot be placed now. `detail` is the text of a reason that does not depend on nodes; `remark` is one
    more sentence."""

    uid: PodUID
    pod: str
    wants: tuple[tuple[str, int], ...]
    code: Code
    total_nodes: int = 0
    groups: tuple[NodeGroup, ...] = ()
    remedy: Remedy | None = None
    detail: str = ""
    standing: Standing | None = None
    remark: str = ""

    @property
    def namespace(self) -> str:
        """Of the pod."""
        return self.pod.partition("/")[0]

    @property
    def layer(self) -> Layer:
        return self.code.row.layer


def wants_of(request: Request) -> tuple[tuple[str, int], ...]:
    """What the pod asks of GPUs, counted; what it asks of the node if it asks for no GPU."""
    counts: dict[str, int] = {}
    for want in request.slices:
        counts[want.profile] = counts.get(want.profile, 0) + 1
    if request.whole_gpus:
        counts[names.NVIDIA_GPU] = request.whole_gpus
    if request.share is not None:
        counts[part_of(request.share)] = request.share.devices
    return tuple(sorted(counts.items()))


def part_of(share: Share) -> str:
    """What a share is of each GPU, in words."""
    return f"{decimal(share.milli)} GPU" if share.milli is not None else f"{share.memory_mib} MiB of a GPU"


def grouped(reasons: Mapping[NodeName, Reason]) -> tuple[NodeGroup, ...]:
    """Reasons per node brought together; the largest group first."""
    groups: dict[tuple[Code, str, int], list[tuple[NodeName, Reason]]] = {}
    for node in sorted(reasons):
        reason = reasons[node]
        # A fraction is more or less memory on GPUs of different memory.
        need = reason.need if reason.code.row.of_one else 0
        groups.setdefault((reason.code, reason.subject, need), []).append((node, reason))
    merged = [_merged(tuple(node for node, _ in members), [each for _, each in members]) for members in groups.values()]
    return tuple(sorted(merged, key=lambda group: (-len(group.nodes), group.code, group.subject, group.need)))


def _merged(nodes: tuple[NodeName, ...], reasons: Sequence[Reason]) -> NodeGroup:
    code, subject = reasons[0].code, reasons[0].subject
    need = max(reason.need for reason in reasons)
    if code.row.of_one:
        free, total = max((reason.free, reason.total) for reason in reasons)
    else:
        free, total = sum(reason.free for reason in reasons), sum(reason.total for reason in reasons)
    return NodeGroup(code, subject, nodes, need, free, total)


def from_reasons(request: Request, reasons: Mapping[NodeName, Reason], remedy: Remedy | None = None) -> Refusal:
    groups = grouped(reasons)
    # The layer that a pod reaches last on some node is the one that blocks it.
    deepest = max(groups, key=lambda group: (_LAYERS.index(group.code.row.layer), len(group.nodes)), default=None)
    return Refusal(
        uid=request.uid,
        pod=request.key,
        wants=wants_of(request),
        code=deepest.code if deepest else Code.NO_NODES,
        total_nodes=len(reasons),
        groups=groups,
        remedy=remedy,
    )


def of_pod(request: Request, code: Code, subject: str = "", need: int = 0) -> Refusal:
    """A refusal that does not depend on nodes."""
    return Refusal(request.uid, request.key, wants_of(request), code, detail=code.row.said(subject, need))


def unexplained(request: Request) -> Refusal:
    """A refusal for callers that only need to know that there is no placement."""
    return Refusal(request.uid, request.key, (), Code.NOT_PLACED)


_LAYERS = list(Layer)
