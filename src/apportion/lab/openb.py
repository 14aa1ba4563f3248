"""Replays of the openb trace through the core and through published policies.

One pod at a time in the given order; no pod leaves or moves, and no policy looks ahead; a pod that does not fit
is dropped. The core may know the statistics of the request list, as the published policy does, or learn them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from apportion.apis import names
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.noderules import NodeRules
from apportion.apis.request import POLICIES, Request, Share
from apportion.apis.selectors import NodeSelector, NodeSelectorTerm, Requirement
from apportion.core import group_decision
from apportion.core.catalog import Catalog, Model
from apportion.core.fleet import Fleet, GpuFacts, NodeFacts
from apportion.core.groups import Group
from apportion.core.placement.request_mix import Mix
from apportion.core.policies import Policy
from apportion.lab.allocation_meter import AllocationMeter
from apportion.lab.baselines import BASELINES
from apportion.lab.trace import MILLI, Arrival, Trace, TraceError, TracePod

LEARNED = "-learned"
OURS = "fragmentation"
POLICY_NAMES = (OURS, OURS + LEARNED, *BASELINES)
_OTHER_NAMES = {"firstfit": "first-fit", "bestfit": "best-fit", "dotprod": "dot-product", "dotproduct": "dot-product"}
_PODS_PER_NODE = 1_000_000

Progress = Callable[[int], None]


def known_as(policy: str) -> str:
    """A policy's name as we write it; papers write FGD, BestFit and DotProd."""
    plain = policy.lower().replace("-", "").replace("_", "")
    return _OTHER_NAMES.get(plain, policy.lower())


def learning(policy: str) -> str:
    """The name of a policy of ours that learns its mix; published policies have nothing to learn."""
    return policy if policy in BASELINES or policy.endswith(LEARNED) else policy + LEARNED


def run(trace: Trace, seed: int, policy: str, progress: Progress = lambda _: None) -> dict[str, Any]:
    """One replay: its columns and its speed."""
    arrival = trace.arrival(seed)
    place = _placer(trace, arrival, policy)
    meter = AllocationMeter(trace.capacity)
    started = time.process_time()
    for number, index in enumerate(arrival.pods):
        pod = trace.pods[index]
        meter.note(pod.gpu, placed=place(number, index))
        progress(1)
    seconds = time.process_time() - started
    return {
        "variant": trace.variant,
        "seed": seed,
        "policy": policy,
        "learned": policy.endswith(LEARNED),
        **meter.columns(),
        "decisions_per_second": round(len(arrival.pods) / seconds, 1),
    }


def fleet_of(trace: Trace, arrival: Arrival, copies: int = 1) -> Fleet:
    """The trace's nodes, named so that the order of names is the order of ranks."""
    fleet = Fleet(Catalog())
    models = {node.model: _model(node.model) for node in trace.nodes}
    for copy in range(copies):
        for rank, node in zip(arrival.node_rank, trace.nodes, strict=True):
            name = NodeName(f"{copy:02}-{rank:05}-{node.name}")
            offered = {
                "cpu": node.cpu,
                "memory": node.memory,
                "pods": _PODS_PER_NODE,
                names.NVIDIA_GPU: node.gpus,
            }
            fleet.set_node(NodeFacts(name, {names.GPU_PRODUCT_LABEL: node.model}, allocatable=offered))
            gpus = [
                GpuFacts(DeviceUUID(f"{name}-{index}"), models[node.model], mig=False) for index in range(node.gpus)
            ]
            fleet.set_gpus(name, gpus, ready=True)
    return fleet


def requests_of(trace: Trace) -> list[Request]:
    """The trace's pods as requests; an arrival gets its own uid from `arriving`."""
    return [_request(pod) for pod in trace.pods]


def arriving(requests: list[Request], order: Iterable[int]) -> Iterator[Request]:
    for number, index in enumerate(order):
        uid = f"pod-{number}"
        yield msgspec.structs.replace(requests[index], uid=uid, name=uid)


def policy_of(name: str, requests: list[Request]) -> Policy:
    """A policy of the core: with the request list's statistics, or learning them as pods come."""
    if name.endswith(LEARNED):
        return Policy(name.removesuffix(LEARNED))
    return Policy(name, Mix.of(requests))


def _placer(trace: Trace, arrival: Arrival, policy: str) -> Callable[[int, int], bool]:
    if policy in BASELINES:
        baseline = BASELINES[policy](trace, arrival)
        return lambda _, index: baseline.place(trace.pods[index])
    if policy.removesuffix(LEARNED) not in POLICIES:
        raise TraceError("--policy", policy, f"must be one of {', '.join(POLICY_NAMES)}", code="UnknownPolicy")
    fleet, requests = fleet_of(trace, arrival), requests_of(trace)
    core = policy_of(policy, requests)

    def place(number: int, index: int) -> bool:
        uid = f"pod-{number}"
        request = msgspec.structs.replace(requests[index], uid=uid, name=uid)
        return isinstance(
            group_decision.decide(fleet, Group.of(request), core, explained=False), group_decision.Statement
        )

    return place


def _model(name: str) -> Model:
    return Model(id=name, product_names=(name,), memory_mib=MILLI)


def _request(pod: TracePod) -> Request:
    resources = {"cpu": pod.cpu, "memory": pod.memory}
    whole = pod.gpus if pod.milli == MILLI else 0
    if whole:
        resources[names.NVIDIA_GPU] = whole
    share = Share("main", milli=pod.milli) if 0 < pod.milli < MILLI else None
    rules = NodeRules()
    if pod.gpus and pod.models:
        named = Requirement(key=names.GPU_PRODUCT_LABEL, operator="In", values=pod.models)
        rules = NodeRules(required=NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(named,)),)))
    return Request(
        uid=PodUID(""),
        namespace="openb",
        name="",
        scheduler_name=names.KAI_SCHEDULER,
        whole_gpus=whole,
        share=share,
        resources={name: amount for name, amount in resources.items() if amount},
        rules=rules,
    )
