"""Pending jobs are decided one after the other until nothing changes any more.

Jobs take turns by priority, then age. Nothing is evicted. This module and `fleets` are all that knows the core's API.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from apportion.apis.request import Request
from apportion.core import group_decision
from apportion.core.explanations import messages
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.placement.request_mix import Mix
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal
from apportion.lab.scenarios import fleets, requests
from apportion.lab.scenarios.schema import Scenario
from apportion.lab.scenarios.simulation import Simulation

EXTRA_CYCLES = 5
MOST_CYCLES = 200


@dataclass(frozen=True)
class PodPlacement:
    """Where a pod is: its GPUs in the order of its slices or devices, and where its slices start."""

    node: str
    devices: tuple[str, ...] = ()
    starts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Wait:
    """Why a job is pending; `nodes` has the reason of each node."""

    reason: str
    layer: str
    message: str
    nodes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ScenarioResult:
    """The final state. `late` are the jobs that were placed after a cycle in which nothing was placed."""

    places: dict[str, PodPlacement]
    waits: dict[str, Wait]
    uses: dict[str, list[str]]
    devices: dict[str, list[str]]
    unsound: list[str]
    late: list[str]
    evictions: int = 0
    shares: dict[str, int] = field(default_factory=dict)


def run(scenario: Scenario, policy: str, *, plain: bool) -> ScenarioResult:
    """`plain` looks at every node for every pod; the result must be the same."""
    asked = {job.name: requests.of_job(job, number) for number, job in enumerate(scenario.jobs)}
    mix = None if scenario.mix is None else Mix.of(requests.of_mix(ask, n) for n, ask in enumerate(scenario.mix))
    rules = Policy(policy, mix)
    fleet = fleets.build(scenario, asked)
    pending = {pod.uid: pod for job in scenario.jobs if job.on is None for pod in asked[job.name]}
    simulation = Simulation(fleet, pending, rules, plain=plain)
    evictions, rest = 0, False
    for _ in range(MOST_CYCLES):
        done = simulation.cycle()
        evictions += len(done.evicted)
        if not done:
            rest = True
            break
    extra = [simulation.cycle() for _ in range(EXTRA_CYCLES)]
    late = [name for done in extra for name in (*done.placed, *done.evicted)]
    waiting = {pod.group_key: None for pod in simulation.pending.values()}
    waits = {
        job.name: _explained(fleet, asked[job.name], rules, simulation.refused[asked[job.name][0].group_key])
        for job in scenario.jobs
        if asked[job.name][0].group_key in waiting
    }
    return ScenarioResult(
        places=dict(_places(fleet, asked)),
        waits=waits,
        uses={node.name: [str(gpu.use) for gpu in node.gpus.values()] for node in fleet},
        devices={node.name: list(node.gpus) for node in fleet},
        unsound=list(_unsound(fleet, asked)) + ([] if rest else [f"no rest after {MOST_CYCLES} cycles"]),
        late=late,
        evictions=evictions,
        shares={name: amounts.gpu for name, amounts in simulation.shares.items()},
    )


def _explained(fleet: Fleet, members: tuple[Request, ...], policy: Policy, refusal: Refusal) -> Wait:
    if refusal.code is Code.NOT_PLACED:
        left = [member for member in members if member.uid not in fleet.pod_nodes]
        explained = group_decision.decide(fleet, Group.of(*left, key=left[0].group_key), policy)
        assert isinstance(explained, Refusal)
        refusal = explained
    nodes: dict[str, str] = {node: str(part.code) for part in refusal.groups for node in part.nodes}
    return Wait(str(refusal.code), str(refusal.layer), messages.of(refusal), nodes)


def _places(fleet: Fleet, asked: dict[str, tuple[Request, ...]]) -> Iterator[tuple[str, PodPlacement]]:
    for request in (request for group in asked.values() for request in group):
        node = fleet.pod_nodes.get(request.uid)
        if node is None:
            continue
        held = {record.key: record for record in fleet.slices_of(request.uid)}
        slices = [held[key] for key in fleets.claim_names(request) if key in held]
        devices = (
            *(record.gpu for record in slices),
            *(record.gpu for record in fleet.shares_of(request.uid)),
            *fleet.nodes[node].devices_of(request.uid),
        )
        yield request.name, PodPlacement(node, devices, tuple(record.placement.start for record in slices))


def _unsound(fleet: Fleet, asked: dict[str, tuple[Request, ...]]) -> Iterator[str]:
    """What must hold in every cluster: places that do not overlap, nothing sold twice, each pod has what it asked."""
    for gpu in (gpu for node in fleet for gpu in node.gpus.values()):
        used = [held for held in gpu.slices.values() if held.owner in fleet.pod_nodes or not held.owner]
        placements = [held.placement for held in used]  # claims of pending pods may be anywhere
        units = [unit for each in placements for unit in range(each.start, each.start + each.size)]
        if len(units) != len(set(units)):
            yield f"slices overlap on {gpu.uuid}"
        if sum((bool(used), bool(gpu.shares), gpu.whole is not None)) > 1:
            yield f"{gpu.uuid} is in two uses at a time"
        if sum(gpu.shares.values()) > gpu.memory_mib:
            yield f"more memory of {gpu.uuid} is shared than it has"
    for request in (request for group in asked.values() for request in group):
        if request.uid not in fleet.pod_nodes:
            continue
        has = {record.key: record.placement.profile for record in fleet.slices_of(request.uid)}
        wants = dict(zip(fleets.claim_names(request), (want.profile for want in request.slices), strict=True))
        if has != wants:
            yield f"{request.name} has the slices {sorted(has.values())} instead of {sorted(wants.values())}"
