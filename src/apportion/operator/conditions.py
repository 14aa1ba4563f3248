"""The conditions Available, Progressing and Degraded of the DASOperator (S10)."""

from __future__ import annotations

from collections.abc import Sequence

from apportion.apis import names
from apportion.apis.meta import Condition, condition
from apportion.operator.unusable_nodes import NodeProblem
from apportion.operator.workloads import Health, ManagedPlane


def assess(found: Sequence[Health], nodes: Sequence[NodeProblem] = (), refusal: str = "") -> list[Condition]:
    """The three conditions, without timestamps; `refusal` is what the API server did not let the operator write."""
    return [_available(found), _progressing(found), _degraded(found, nodes, refusal)]


def removed(waits: str) -> list[Condition]:
    """The same while managementState is Removed; `waits` says what remains, and why."""
    gone = "removed: spec.managementState is Removed"
    progress = Condition(type="Progressing", status="False", reason="Removed", message=gone)
    if waits:
        progress = Condition(type="Progressing", status="True", reason="Removing", message=waits)
    return [
        Condition(type="Available", status="False", reason="Removed", message=gone),
        progress,
        Condition(type="Degraded", status="False", reason="Removed", message=gone),
    ]


def merge(known: Sequence[Condition], found: Sequence[Condition], *, now: str, generation: int) -> list[Condition]:
    """Conditions to store: a transition time changes only with its status; other conditions are kept."""
    merged = []
    for entry in found:
        before = condition(list(known), entry.type)
        since = before.last_transition_time if before and before.status == entry.status else now
        merged.append(
            Condition(
                type=entry.type,
                status=entry.status,
                reason=entry.reason,
                message=entry.message,
                last_transition_time=since or now,
                observed_generation=generation,
            )
        )
    ours = {entry.type for entry in found}
    return [*(entry for entry in known if entry.type not in ours), *merged]


def _available(found: Sequence[Health]) -> Condition:
    down = [entry for entry in found if entry.available == 0]
    nowhere = [
        entry
        for entry in down
        if entry.managed.plane is ManagedPlane.agent and entry.present and entry.settled and not entry.desired
    ]
    if nowhere and len(down) == 1:
        labels = f"{names.MIG_CAPABLE_LABEL}=true or {names.MANAGED_LABEL}=true"
        message = f"no node has the label {labels} and matches spec.nodeSelector"
        return Condition(type="Available", status="False", reason="NoNodes", message=message)
    if down:
        message = "; ".join(f"{entry.managed.name} has no available pod: {entry.managed.means}" for entry in down)
        return Condition(type="Available", status="False", reason="ComponentsNotAvailable", message=message)
    return Condition(
        type="Available", status="True", reason="AllComponentsAvailable", message="all components are available"
    )


def _progressing(found: Sequence[Health]) -> Condition:
    rolling = [entry for entry in found if entry.rolling]
    if rolling:
        message = "; ".join(
            f"{entry.managed.name}: {entry.updated} of {entry.desired} pods updated" for entry in rolling
        )
        return Condition(type="Progressing", status="True", reason="RollingOut", message=message)
    return Condition(type="Progressing", status="False", reason="AsDesired", message="no rollout in progress")


def _degraded(found: Sequence[Health], nodes: Sequence[NodeProblem], refusal: str) -> Condition:
    if refusal:
        return Condition(type="Degraded", status="True", reason="ChangeRefused", message=refusal)
    problems = [f"{entry.managed.kind.kind} {entry.managed.name} is missing" for entry in found if not entry.present]
    problems += [
        f"{entry.managed.name} is scaled to 0: {entry.managed.means}"
        for entry in found
        if entry.present and entry.settled and not entry.desired and entry.managed.plane is not ManagedPlane.agent
    ]
    problems += [
        f"{entry.managed.name}: {entry.available} of {entry.desired} pods available"
        for entry in found
        if entry.present and entry.short and not entry.rolling
    ]
    problems += [f"node {entry.node}: {entry.message}" for entry in nodes]
    if problems:
        reason = nodes[0].reason if nodes else "ComponentsIncomplete"
        return Condition(type="Degraded", status="True", reason=reason, message="; ".join(problems))
    return Condition(type="Degraded", status="False", reason="AllComponentsHealthy", message="all pods are available")
