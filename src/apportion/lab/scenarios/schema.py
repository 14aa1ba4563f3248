"""The written form of a scenario: nodes and jobs in, expected placement out.

These structs are what a YAML document is converted to; `docs/scenarios.md` explains the keys. Keys that are not
listed here are errors.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

MODEL = "NVIDIA A100-PCIE-40GB"
NODE_CPU = "1024"  # cores: plenty
NODE_MEMORY = "20G"
NODE_PODS = 110
POD_CPU = "1"
POD_MEMORY = "1G"
PRIORITY = 50
EVERY_POLICY = "every"
MOST = 10_000  # nodes of a pool, pods of a job
MOST_GPUS = 1024

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Index = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Indices = Index | list[Index]
Number = Annotated[int, msgspec.Meta(ge=-1)] | Annotated[float, msgspec.Meta(ge=-1)]
Memory = Annotated[int, msgspec.Meta(ge=1, le=2**31)]  # MiB of a GPU
Amount = str | int | float  # a Kubernetes quantity
Texts = str | list[str]


class ScenarioPart(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Unknown keys are errors."""


class ScenarioGpus(ScenarioPart, frozen=True, kw_only=True):
    """GPUs of one model; what is not said here is said by the node."""

    count: Annotated[int, msgspec.Meta(ge=0, le=MOST_GPUS)] = 1
    model: str | None = None
    memory: Memory | None = None
    mig: bool | None = None


class ScenarioForeignSlice(ScenarioPart, frozen=True, kw_only=True):
    """A slice on the node that Apportion did not create."""

    device: Index = 0
    start: Index
    size: Annotated[int, msgspec.Meta(ge=1, le=16)]
    profile: str = ""


class ScenarioNode(ScenarioPart, frozen=True, kw_only=True):
    """One node, or `count` nodes that are alike (`name-0`, `name-1`, ...)."""

    count: Annotated[int, msgspec.Meta(ge=1, le=MOST)] | None = None
    gpus: Annotated[int, msgspec.Meta(ge=0, le=MOST_GPUS)] | list[ScenarioGpus] = 0
    model: str = MODEL
    memory: Memory | None = None
    mig: bool | None = None
    unhealthy: list[Index] = []
    foreign: list[ScenarioForeignSlice] = []
    agent_ready: bool = True
    cpu: Amount = NODE_CPU
    host_memory: Amount = NODE_MEMORY
    capacity: dict[str, Amount] = {}
    labels: dict[str, str] = {}
    taints: list[str] = []
    cordoned: bool = False


class HeldClaim(ScenarioPart, frozen=True, kw_only=True):
    """A slice that is claimed for a job that has no node yet."""

    profile: str
    node: str
    device: Index = 0
    start: Index
    index: Index = 0


class PodTerm(ScenarioPart, frozen=True, kw_only=True):
    """Other pods, by their labels, within one value of a node label."""

    labels: dict[str, str]
    topology_key: str = "kubernetes.io/hostname"


class Spread(PodTerm, frozen=True, kw_only=True):
    max_skew: Annotated[int, msgspec.Meta(ge=1)] = 1


class Ask(ScenarioPart, frozen=True, kw_only=True):
    """What each pod of a job asks for."""

    gpus: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    fraction: str | float | None = None
    memory: Annotated[int, msgspec.Meta(ge=1)] | None = None
    num_devices: Annotated[int, msgspec.Meta(ge=1)] | None = None
    mig: dict[str, Annotated[int, msgspec.Meta(ge=1)]] | list[str] = {}
    cpu: Amount = POD_CPU
    host_memory: Amount = POD_MEMORY
    limits: dict[str, Amount] = {}
    selector: dict[str, str] = {}
    node_affinity: list[str] = []
    preferred_nodes: dict[str, Annotated[int, msgspec.Meta(ge=1, le=100)]] = {}
    pod_affinity: list[PodTerm] = []
    pod_anti_affinity: list[PodTerm] = []
    topology_spread: list[Spread] = []
    tolerations: list[str] = []


class Job(Ask, frozen=True, kw_only=True):
    """Pods that are placed all or none. With `on` they run there at the start, otherwise they are pending."""

    name: str
    namespace: str = "default"
    labels: dict[str, str] = {}
    queue: str | None = None
    priority: int = PRIORITY
    bare: bool = False
    pods: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = 1
    min: Annotated[int, msgspec.Meta(ge=1, le=MOST)] | None = None
    policy: str | None = None
    gates: list[str] = []
    any_order: bool = False
    on: Texts | None = None
    device: Indices | None = None
    start: Indices | None = None
    claims: list[HeldClaim] = []

    def pod_names(self) -> tuple[str, ...]:
        return (self.name,) if self.pods == 1 else tuple(f"{self.name}-{number}" for number in range(self.pods))

    def nodes(self) -> tuple[str, ...]:
        """Where its pods run at the start, empty for a pending job."""
        if self.on is None:
            return ()
        return (self.on,) * self.pods if isinstance(self.on, str) else tuple(self.on)


class QueueAllowance(ScenarioPart, frozen=True, kw_only=True):
    """-1 is unlimited."""

    quota: Number = -1
    limit: Number = -1
    weight: Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0)] = 1


class ScenarioQueue(QueueAllowance, frozen=True, kw_only=True):
    """A queue with its GPUs. Queues are listed oldest first. CPU is in cores, memory in GB."""

    quota: Number = 0
    parent: str = ""
    priority: int = 100
    cpu: QueueAllowance = QueueAllowance()
    memory: QueueAllowance = QueueAllowance()


class Partly(ScenarioPart, frozen=True, kw_only=True):
    """How many pods of an elastic job run and wait."""

    running: Count
    pending: Count


class Expect(ScenarioPart, frozen=True, kw_only=True):
    """What must hold once nothing changes any more; what is not named is not checked."""

    running: list[str] = []
    pending: list[str] = []
    where: dict[str, Texts] = {}
    not_where: dict[str, Texts] = {}
    device: dict[str, Indices] = {}
    start: dict[str, Indices] = {}
    together: list[list[str]] = []
    apart: list[list[str]] = []
    uses: dict[str, list[str]] = {}
    reason: dict[str, str | dict[str, str]] = {}
    layer: dict[str, str] = {}
    message: dict[str, Texts] = {}
    evictions: Annotated[int, msgspec.Meta(ge=0)] | None = None
    shares: dict[str, Number] = {}
    partly: dict[str, Partly] = {}


class Scenario(ScenarioPart, frozen=True, kw_only=True):
    name: str
    policy: Texts = "fragmentation"
    mix: list[Ask] | None = None
    nodes: dict[str, ScenarioNode] = {}
    queues: dict[str, ScenarioQueue] = {}
    jobs: list[Job] = []
    expect: Expect


def as_tuple(value: int | list[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def as_texts(value: Texts) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
