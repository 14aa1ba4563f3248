"""A pod that still waits but has claims: what a crash between claim and binding left, and what to do.

Good claims are used: the decision then only adds what is missing. Claims that cannot be used any more
(their node changed, or another claim lies over them) are let go, and the pod waits until they are gone,
because its new claims will have the same names.
"""

from __future__ import annotations

from collections.abc import Sequence

from apportion.apis.claims import AllocationClaim
from apportion.apis.request import Request
from apportion.core import cycle
from apportion.core.filters import nodes, resources, storage
from apportion.core.fleet import Fleet, SliceRecord
from apportion.core.plans import Plan
from apportion.core.policies import Policy
from apportion.view import verdicts
from apportion.view.verdicts import Verdict

GIVEN_UP = "ClaimsGivenUp"


def decide(
    fleet: Fleet, request: Request, claims: Sequence[AllocationClaim], policy: Policy, *, exhausted: bool = False
) -> Plan | Verdict:
    """Decide about a pod that has claims. Refused as GIVEN_UP its claims are to be deleted.

    `exhausted`: it was tried with these claims often enough.
    """
    if any(claim.metadata.deleting for claim in claims):
        return verdicts.leaving(request)
    problem = "binding failed repeatedly" if exhausted else _obstacle(fleet, request, claims)
    if problem is None:
        outcome = cycle.decide(fleet, [request], policy)
        if isinstance(outcome, Plan):
            return outcome
        problem = "they do not suffice"
    return verdicts.refused(request, GIVEN_UP, f"its claims are given up: {problem}")


def _obstacle(fleet: Fleet, request: Request, claims: Sequence[AllocationClaim]) -> str | None:
    """Why the pod's claims cannot be used; None if they can."""
    homes = {claim.spec.nodename for claim in claims}
    homes |= {fleet.gpu_nodes.get(record.gpu, "") for record in fleet.slices_of(request.uid)}
    if len(homes) != 1:
        return "its claims lie on different nodes, or on a GPU that is gone"
    node = fleet.nodes.get(homes.pop())
    if node is None or node.facts is None:
        return "the node of its claims is gone"
    if not node.ready:
        return f"the agent of node {node.name} is not ready"
    reason = (
        nodes.against(node, request)
        or resources.against(node, request)
        or resources.against_gpu_resources(node, request)
        or storage.anywhere(fleet, request)
        or storage.against(fleet, node, request)
    )
    if reason is not None:
        return f"node {node.name} no longer takes it ({reason.code})"
    if any(_covered(fleet, record) for record in fleet.slices_of(request.uid)):
        return "another claim lies on the same place"
    return None


def _covered(fleet: Fleet, record: SliceRecord) -> bool:
    gpu = fleet.nodes[fleet.gpu_nodes[record.gpu]].gpus[record.gpu]
    return any(
        key != record.key and other.start < record.start + record.size and record.start < other.start + other.size
        for key, other in gpu.slices.items()
    )
