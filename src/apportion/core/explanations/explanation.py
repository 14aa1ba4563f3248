"""Why a pod fits nowhere, and the cheapest change that would admit it.

Cheapest in this order: a toleration or a selector, something smaller, another GPU model, pods to end, another rule to
relax, a node to add. Each proposal is tried out on the fleet and taken back, so what is proposed works.

An explanation looks at every node more than once, which takes a while in a large fleet. So it is divided into steps:
between two steps other pods can be decided, and no trial change remains in the fleet. Nodes that change in the meantime
are checked again at the end, and the cheapest change is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from apportion.apis import names
from apportion.apis.identities import NodeName
from apportion.apis.request import Request
from apportion.apis.shares import LEAST_MILLI, decimal
from apportion.core.explanations import remedies
from apportion.core.explanations.node_reasons import NODES_PER_STEP, NodeReasons
from apportion.core.filters import Checks
from apportion.core.fleet import Fleet
from apportion.core.grid import Grid
from apportion.core.node import MILLI, NodeState
from apportion.core.operations import Operation
from apportion.core.placement.fragmentation_tables import product_of
from apportion.core.placement.node_placement import placement
from apportion.core.placement.request_mix import products_of
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal, Remedy, from_reasons, wants_of

_MOST_NODES = 32  # nodes that are checked for pods to end or rules to relax
_MOST_REPEATS = 2  # if the fleet changes all the time, a slightly older state is good enough
_CRITICAL = 2_000_000_000  # priorities of the cluster's own pods

T = TypeVar("T")

Steps = Generator[None, None, Refusal]
Proposals = Iterator[Remedy | None]  # None: a pause


def refuse(fleet: Fleet, request: Request, policy: Policy) -> Refusal:
    """Why a pod has no place now, and what would give it one: all steps at once."""
    return worked_out(Explanation(fleet, request, policy).steps())


def worked_out(steps: Generator[None, None, T]) -> T:
    """All steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Explanation:
    """For one class of requests. It can be kept: if nothing has changed, it costs nothing more."""

    def __init__(self, fleet: Fleet, request: Request, policy: Policy) -> None:
        self._survey = NodeReasons(fleet, request, policy)
        self._remedy: Remedy | None = None
        self._complete = False

    @property
    def request(self) -> Request:
        return self._survey.request

    def assuming(self, operations: Sequence[Operation]) -> AbstractContextManager[None]:
        """A block for one step, in which these operations are carried out on the fleet."""
        return self._survey.assuming(operations) if operations else nullcontext()

    def steps(self) -> Steps:
        """Bring it up to date, with pauses; the refusal is what the generator returns."""
        survey = self._survey
        for _ in range(_MOST_REPEATS):
            if self._complete and survey.current:
                break
            yield from survey.gather()
            self._complete = False
            self._remedy = yield from _cheapest(survey)
            self._complete = True
        while not survey.current:  # the reasons, by which the pod is woken, are those of this moment
            yield from survey.gather()
            self._complete = False
        return from_reasons(survey.request, survey.reasons, self._remedy)


def _cheapest(survey: NodeReasons) -> Generator[None, None, Remedy | None]:
    proposals: tuple[Callable[[NodeReasons], Proposals], ...] = (
        _tolerations_and_selectors,
        smaller_requests,
        _other_models,
        _pods_to_end,
        _other_rules,
        _twins,
    )
    for propose in proposals:
        for remedy in propose(survey):
            yield
            if remedy is not None and (yield from _admits(survey, remedy)):
                return remedy
    return None


def _admits(survey: NodeReasons, remedy: Remedy) -> Generator[None, None, bool]:
    """Try a remedy out and take it back."""
    fleet, request = survey.fleet, survey.request
    if remedy.changes_pod:
        return (yield from fits_anywhere(survey, remedies.apply(fleet, request, remedy)))
    node = fleet.nodes.get(remedy.node)
    if node is None or node.facts is None:
        return False
    with survey.trial():
        if remedy.kind == remedies.ADD:
            return survey.fits(remedies.add_twin(fleet, remedy.node), request)
        return survey.fits(remedy.node, remedies.apply(fleet, request, remedy))


def fits_anywhere(survey: NodeReasons, request: Request) -> Generator[None, None, bool]:
    """Is there a node that can take this request?"""
    policy = survey.policy.for_request(request)
    counts = yield from survey.counts_for(request)
    checks = Checks(survey.fleet, request, counts)
    for number, node in enumerate(list(survey.fleet), 1):
        if checks.against(node) is None and placement(node, request, policy) is not None:
            return True
        if number % NODES_PER_STEP == 0:
            yield
    return False


def smaller_requests(survey: NodeReasons) -> Proposals:
    """Less of the same, the largest first."""
    request, fleet = survey.request, survey.fleet
    if request.slices:
        offered = yield from _offered(fleet)
        for asked in _asked_profiles(fleet, request):
            wanted = _facts(fleet, asked)
            lesser = [name for name in offered if wanted and _facts(fleet, name) < wanted]
            for name in sorted(lesser, key=lambda name: (_facts(fleet, name), name), reverse=True):
                yield Remedy(remedies.SMALLER, subject=asked, instead=name)
    elif request.share is not None:
        yield from _smaller_share(fleet, request)
    elif request.whole_gpus:
        free = yield from _over_nodes(fleet, lambda node: [sum(milli == MILLI for milli in node.remainders())])
        for count in sorted((count for count in free if 0 < count < request.whole_gpus), reverse=True):
            yield Remedy(remedies.SMALLER, str(request.whole_gpus), str(count), field=names.NVIDIA_GPU)


def _smaller_share(fleet: Fleet, request: Request) -> Proposals:
    share = request.share
    assert share is not None
    if share.milli is not None:
        parts = yield from _over_nodes(fleet, lambda node: [gpu.left_milli for gpu in node.shareable()])
        for part in _below(parts, share.milli, LEAST_MILLI):
            yield Remedy(remedies.SMALLER, decimal(share.milli), decimal(part), field=names.GPU_FRACTION)
    elif share.memory_mib is not None:
        free = yield from _over_nodes(fleet, lambda node: [gpu.free_mib for gpu in node.shareable()])
        for mib in _below(free, share.memory_mib, 1):
            yield Remedy(remedies.SMALLER, str(share.memory_mib), str(mib), field=names.GPU_SHARE_MEMORY)
    if share.devices > 1:
        fitting = yield from _over_nodes(fleet, lambda node: [_can_take(node, request)])
        for count in _below(fitting, share.devices, 1):
            yield Remedy(remedies.SMALLER, str(share.devices), str(count), field=names.GPU_FRACTION_DEVICES)


def _can_take(node: NodeState, request: Request) -> int:
    """How many GPUs of the node have room for the share."""
    return sum(left is not None for left in node.remainders_after(request))


def _over_nodes(fleet: Fleet, amounts: Callable[[NodeState], list[int]]) -> Generator[None, None, set[int]]:
    found: set[int] = set()
    for number, node in enumerate(list(fleet), 1):
        found.update(amounts(node))
        if number % NODES_PER_STEP == 0:
            yield
    return found


def _below(amounts: set[int], asked: int, least: int) -> list[int]:
    return sorted((amount for amount in amounts if least <= amount < asked), reverse=True)[:_MOST_NODES]


def _other_models(survey: NodeReasons) -> Proposals:
    """A profile of another model that gives at least as much memory, the least of these first; another product if the
    pod requires a certain one."""
    request, fleet = survey.request, survey.fleet
    if request.slices:
        offered = yield from _offered(fleet)
        for asked in _asked_profiles(fleet, request):
            wanted = _facts(fleet, asked)
            larger = [name for name in offered if wanted and name != asked and _facts(fleet, name) >= wanted]
            for name in sorted(larger, key=lambda name: (_facts(fleet, name), name)):
                yield Remedy(remedies.MODEL, subject=asked, instead=name)
    insisted = products_of(request) if request.wants_gpu else None
    if insisted:
        for product in sorted({product_of(node) for node in fleet} - {"", *insisted}):
            yield Remedy(remedies.MODEL, " or ".join(insisted), product, field=names.GPU_PRODUCT_LABEL)


def _asked_profiles(fleet: Fleet, request: Request) -> list[str]:
    """The profiles asked for, the one that weighs most first."""
    asked = {want.profile for want in request.slices}
    return sorted(asked, key=lambda name: (_facts(fleet, name), name), reverse=True)


def _offered(fleet: Fleet) -> Generator[None, None, set[str]]:
    """Profiles that some GPU of the fleet offers."""
    grids: set[Grid] = set()
    for number, node in enumerate(list(fleet), 1):
        grids.update(gpu.grid for gpu in node.gpus.values() if gpu.facts.mig)
        if number % NODES_PER_STEP == 0:
            yield
    return {shape.name for grid in grids for shape in grid.ordered}


def _facts(fleet: Fleet, profile: str) -> tuple[int, int]:
    """Memory and compute of a profile, by which profiles of all models compare."""
    for model in fleet.catalog:
        found = model.profile(profile)
        if found is not None:
            return found.memory_gb, found.compute
    return 0, 0


def _pods_to_end(survey: NodeReasons) -> Proposals:
    """The fewest pods of one node, those of low priority first."""
    found: list[tuple[int, int, NodeName, tuple[Request, ...]]] = []
    fleet = survey.fleet
    movable = [name for name, reason in survey.reasons.items() if reason.code.row.ends_pods]
    candidates = [fleet.nodes[name] for name in movable if name in fleet.nodes]
    for node in sorted(candidates, key=lambda node: (len(node.pods), node.name))[:_MOST_NODES]:
        victims = yield from _victims(survey, node)
        if victims:
            found.append((len(victims), max(pod.priority for pod in victims), node.name, victims))
    for count, _, name, victims in sorted(found, key=lambda entry: entry[:3]):
        yield Remedy(
            remedies.FREE,
            subject=_what(survey.request),
            node=name,
            pods=tuple(pod.key for pod in victims),
            uids=tuple(pod.uid for pod in victims),
            count=count,
        )


def _victims(survey: NodeReasons, node: NodeState) -> Generator[None, None, tuple[Request, ...]]:
    """A set of pods of this node without which the request fits, and none of which could stay."""
    reservations = survey.fleet.reservation_namespace  # pods there go with the last pod that shares their GPU
    pods = [pod for pod in node.pods.values() if pod.priority < _CRITICAL and pod.namespace != reservations]
    # Lowest priority first, then the newest.
    pods.sort(key=lambda pod: (-pod.priority, pod.created != "", pod.created, pod.uid), reverse=True)
    ended: list[Request] = []
    while not _fits_without(survey, node.name, ended):
        if len(ended) == len(pods):
            return ()
        ended.append(pods[len(ended)])
        yield
    needed = list(ended)
    for pod in sorted(ended, key=lambda pod: (-pod.priority, pod.uid)):  # pods that can stay, highest priority first
        fewer = [other for other in needed if other is not pod]
        if _fits_without(survey, node.name, fewer):
            needed = fewer
        yield
    return tuple(needed)


def _fits_without(survey: NodeReasons, node: NodeName, pods: list[Request]) -> bool:
    with survey.trial():
        for pod in pods:
            remedies.end_pod(survey.fleet, pod.uid)
        return survey.fits(node, survey.request)


def _tolerations_and_selectors(survey: NodeReasons) -> Proposals:
    """Unless the taint is about the condition of the node, or the selector about the GPU model."""
    return _rules(survey, is_simple)


def _other_rules(survey: NodeReasons) -> Proposals:
    return _rules(survey, lambda code, subject: not is_simple(code, subject))


def is_simple(code: Code, subject: str) -> bool:
    """A toleration, or a label of the node selector."""
    if code is Code.TAINT:
        return not subject.startswith(remedies.CONDITION_TAINTS)
    return code is Code.SELECTOR and not subject.startswith(f"{names.GPU_PRODUCT_LABEL}=")


def _rules(survey: NodeReasons, which: Callable[[Code, str], bool]) -> Proposals:
    """One rule without which the pod would fit."""
    tried: set[tuple[Code, str]] = set()
    for name in sorted(survey.reasons):
        reason = survey.reasons[name]
        relaxation = reason.code.row.relaxation
        if relaxation is None or not which(reason.code, reason.subject):
            continue
        key = (reason.code, name if relaxation.of_node else reason.subject)
        if key in tried or len(tried) >= _MOST_NODES:
            continue
        tried.add(key)
        yield Remedy(remedies.RULE, subject=reason.subject, node=name, code=reason.code)


def _twins(survey: NodeReasons) -> Proposals:
    """One more node like an existing one, one try per kind of node."""
    kinds: set[object] = set()
    for number, name in enumerate(sorted(survey.reasons), 1):
        if number % NODES_PER_STEP == 0:
            yield None
        node = survey.fleet.nodes.get(name)
        if node is None or node.facts is None or len(kinds) >= _MOST_NODES:
            continue
        labels = {key: value for key, value in node.facts.labels.items() if key != names.HOSTNAME_LABEL}
        gpus = (gpu.facts for gpu in node.gpus.values())
        models = tuple(sorted((gpu.model.id, gpu.model.memory_mib, gpu.mig, gpu.measured) for gpu in gpus))
        kind = (repr(sorted(labels.items())), models, repr(sorted(node.facts.allocatable.items())))
        if kind not in kinds:
            kinds.add(kind)
            yield Remedy(remedies.ADD, node=name)


def _what(request: Request) -> str:
    wants = wants_of(request)
    return " + ".join(f"{count} x {name}" for name, count in wants) if wants else "its resources"
