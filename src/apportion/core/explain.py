"""Why not, and what would help: the cheapest change that admits a pod that fits nowhere.

Cheapest in this order: something smaller, another GPU model, pods to end, a rule to relax, a node to add. Each
proposal is tried out on the fleet and taken back, so what is proposed works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from apportion.apis import names
from apportion.apis.request import Request
from apportion.apis.shares import LEAST_MILLI
from apportion.core import remedies
from apportion.core.choosing import best_placement, reasons_against
from apportion.core.filters import Checks
from apportion.core.fleet import Fleet
from apportion.core.mix import products_of
from apportion.core.node import MILLI, NodeState
from apportion.core.placing import placement
from apportion.core.policies import Policy
from apportion.core.reasons import Code, Reason
from apportion.core.refusals import Refusal, Remedy, from_reasons, wants_of
from apportion.core.worth import product_of

_MOST_NODES = 32  # looked at for pods to end or rules to relax
_CRITICAL = 2_000_000_000  # priorities of the cluster's own pods


def refuse(fleet: Fleet, request: Request, policy: Policy) -> Refusal:
    """Why a pod has no place now, and what would give it one."""
    reasons = reasons_against(fleet, request)
    return from_reasons(request, reasons, cheapest_remedy(fleet, request, policy, reasons))


def cheapest_remedy(fleet: Fleet, request: Request, policy: Policy, reasons: Mapping[str, Reason]) -> Remedy | None:
    proposals: tuple[Callable[[], Iterator[Remedy]], ...] = (
        lambda: _smaller(fleet, request),
        lambda: _other_models(fleet, request),
        lambda: _pods_to_end(fleet, request, policy, reasons),
        lambda: _rules(reasons),
        lambda: _twins(fleet, reasons),
    )
    for propose in proposals:
        for remedy in propose():
            if admits(fleet, request, policy, remedy):
                return remedy
    return None


def admits(fleet: Fleet, request: Request, policy: Policy, remedy: Remedy) -> bool:
    """Try a remedy out and take it back."""
    mark = fleet.checkpoint()
    try:
        if remedy.kind == remedies.ADD:
            return _fits(fleet, remedies.add_twin(fleet, remedy.node), request, policy)
        changed = remedies.apply(fleet, request, remedy)
        if changed is request:
            return _fits(fleet, remedy.node, request, policy)
        return best_placement(fleet, changed, policy.for_request(changed)) is not None
    finally:
        fleet.rollback(mark)


def _smaller(fleet: Fleet, request: Request) -> Iterator[Remedy]:
    """Less of the same, the largest first."""
    if request.slices:
        for asked in _asked_profiles(fleet, request):
            wanted = _facts(fleet, asked)
            lesser = [name for name in _offered(fleet) if wanted and _facts(fleet, name) < wanted]
            for name in sorted(lesser, key=lambda name: (_facts(fleet, name), name), reverse=True):
                yield Remedy(remedies.SMALLER, subject=asked, instead=name)
    elif request.share is not None:
        yield from _smaller_share(fleet, request)
    else:
        free = {sum(milli == MILLI for milli in node.remainders()) for node in fleet}
        for count in sorted((count for count in free if 0 < count < request.whole_gpus), reverse=True):
            yield Remedy(remedies.SMALLER, str(request.whole_gpus), str(count), field=names.NVIDIA_GPU)


def _smaller_share(fleet: Fleet, request: Request) -> Iterator[Remedy]:
    share = request.share
    assert share is not None
    gpus = [gpu for node in fleet for gpu in node.shareable()]
    if share.milli is not None:
        parts = {gpu.left_milli for gpu in gpus}
        for part in _below(parts, share.milli, LEAST_MILLI):
            yield Remedy(remedies.SMALLER, _decimal(share.milli), _decimal(part), field=names.GPU_FRACTION)
    elif share.memory_mib is not None:
        for mib in _below({gpu.free_mib for gpu in gpus}, share.memory_mib, 1):
            yield Remedy(remedies.SMALLER, str(share.memory_mib), str(mib), field=names.GPU_SHARE_MEMORY)


def _below(amounts: set[int], asked: int, least: int) -> list[int]:
    return sorted((amount for amount in amounts if least <= amount < asked), reverse=True)[:_MOST_NODES]


def _decimal(milli: int) -> str:
    return f"{milli / MILLI:g}"


def _other_models(fleet: Fleet, request: Request) -> Iterator[Remedy]:
    """A profile of another model that gives at least as much memory, the least of these first; another product where
    the pod insists on one."""
    for asked in _asked_profiles(fleet, request):
        wanted = _facts(fleet, asked)
        larger = [name for name in _offered(fleet) if wanted and name != asked and _facts(fleet, name) >= wanted]
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


def _offered(fleet: Fleet) -> set[str]:
    return {shape.name for node in fleet for gpu in node.gpus.values() if gpu.facts.mig for shape in gpu.grid.ordered}


def _facts(fleet: Fleet, profile: str) -> tuple[int, int]:
    """Memory and compute of a profile, by which profiles of all models compare."""
    for model in fleet.catalog:
        found = model.profile(profile)
        if found is not None:
            return found.memory_gb, found.compute
    return 0, 0


def _pods_to_end(fleet: Fleet, request: Request, policy: Policy, reasons: Mapping[str, Reason]) -> Iterator[Remedy]:
    """The fewest pods of one node, those of low priority first."""
    found: list[tuple[int, int, str, tuple[Request, ...]]] = []
    candidates = [fleet.nodes[name] for name, reason in reasons.items() if reason.code.row.ends_pods]
    for node in sorted(candidates, key=lambda node: (len(node.pods), node.name))[:_MOST_NODES]:
        victims = _victims(fleet, node, request, policy)
        if victims:
            found.append((len(victims), max(pod.priority for pod in victims), node.name, victims))
    for count, _, name, victims in sorted(found, key=lambda entry: entry[:3]):
        yield Remedy(
            remedies.FREE,
            subject=_what(request),
            node=name,
            pods=tuple(pod.key for pod in victims),
            uids=tuple(pod.uid for pod in victims),
            count=count,
        )


def _victims(fleet: Fleet, node: NodeState, request: Request, policy: Policy) -> tuple[Request, ...]:
    """A set of pods of this node without which the request fits, and none of which could stay."""
    pods = [pod for pod in node.pods.values() if pod.priority < _CRITICAL]
    pods.sort(key=lambda pod: (pod.priority, pod.created == "", pod.created, pod.uid), reverse=True)
    name = node.name
    mark = fleet.checkpoint()
    ended: list[Request] = []
    try:
        for pod in reversed(pods):  # lowest priority first, then the newest
            if _fits(fleet, name, request, policy):
                break
            ended.append(pod)
            remedies.end_pod(fleet, pod.uid)
        enough = _fits(fleet, name, request, policy)
    finally:
        fleet.rollback(mark)
    return tuple(_pruned(fleet, name, request, policy, ended)) if enough else ()


def _pruned(fleet: Fleet, node: str, request: Request, policy: Policy, ended: list[Request]) -> list[Request]:
    """Let back in whoever need not go; the most important first."""
    needed = list(ended)
    for pod in sorted(ended, key=lambda pod: (-pod.priority, pod.uid)):
        fewer = [other for other in needed if other is not pod]
        mark = fleet.checkpoint()
        try:
            for other in fewer:
                remedies.end_pod(fleet, other.uid)
            if _fits(fleet, node, request, policy):
                needed = fewer
        finally:
            fleet.rollback(mark)
    return needed


def _rules(reasons: Mapping[str, Reason]) -> Iterator[Remedy]:
    """One rule whose absence suffices."""
    tried: set[tuple[Code, str]] = set()
    for name in sorted(reasons):
        reason = reasons[name]
        relaxation = reason.code.row.relaxation
        if relaxation is None:
            continue
        key = (reason.code, name if relaxation.of_node else reason.subject)
        if key in tried or len(tried) >= _MOST_NODES:
            continue
        tried.add(key)
        yield Remedy(remedies.RULE, subject=reason.subject, node=name, code=reason.code)


def _twins(fleet: Fleet, reasons: Mapping[str, Reason]) -> Iterator[Remedy]:
    """One more node like one that is there, one try per kind of node."""
    kinds: set[object] = set()
    for name in sorted(reasons):
        node = fleet.nodes[name]
        assert node.facts is not None
        labels = {key: value for key, value in node.facts.labels.items() if key != names.HOSTNAME_LABEL}
        models = tuple(sorted((gpu.facts.model.id, gpu.facts.mig) for gpu in node.gpus.values()))
        kind = (repr(sorted(labels.items())), models, repr(sorted(node.facts.allocatable.items())))
        if kind in kinds or len(kinds) >= _MOST_NODES:
            continue
        kinds.add(kind)
        yield Remedy(remedies.ADD, node=name)


def _fits(fleet: Fleet, node: str, request: Request, policy: Policy) -> bool:
    state = fleet.nodes.get(node)
    if state is None or Checks(fleet, request).against(state) is not None:
        return False
    return placement(state, request, policy.for_request(request)) is not None


def _what(request: Request) -> str:
    wants = wants_of(request)
    return " + ".join(f"{count} x {name}" for name, count in wants) if wants else "its resources"
