"""Why a queue or a group keeps pods from having their turn, in words: with numbers, and with what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from apportion.apis import names
from apportion.apis.identities import QueueName
from apportion.apis.request import DEFAULT_QUEUE, Request
from apportion.core import refusals
from apportion.core.gangs import Part
from apportion.core.queues import quantities
from apportion.core.queues.gates import Closed, Gate
from apportion.core.queues.tree import Problem, QueueTree
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal

_MOST_NAMES = 3
_ANOTHER = f"name another one in the label {names.QUEUE_LABEL}"
_CODES = {
    Problem.UNKNOWN: Code.NO_QUEUE,
    Problem.INVALID: Code.BROKEN_QUEUE,
    Problem.NOT_A_LEAF: Code.NOT_A_LEAF,
    Problem.NO_PARENT: Code.BROKEN_QUEUE,
    Problem.CYCLE: Code.BROKEN_QUEUE,
}


def unusable(request: Request, tree: QueueTree) -> Refusal | None:
    """The queue of the pod cannot run pods; None if it can."""
    problem = tree.problem(request.queue)
    if problem is None:
        return None
    return refusals.of_pod(request, _CODES[problem], problem_of(tree, request.queue))


def problem_of(tree: QueueTree, name: QueueName) -> str:
    """What is wrong with a queue, and what to do; empty if pods can use it."""
    match tree.problem(name):
        case Problem.UNKNOWN:
            return f"queue {name} does not exist{_whose(name)}: create it, or {_ANOTHER}{_near(tree, name)}"
        case Problem.NOT_A_LEAF:
            children = tree.children(name)
            return (
                f"queue {name} has child queues, and only queues without children run pods: "
                f"name one of them in the label {names.QUEUE_LABEL} ({listed(children)})"
            )
        case None:
            return ""
        case _:
            return f"queue {name} cannot be used: {fault_of(tree, name)}"


def fault_of(tree: QueueTree, name: QueueName) -> str:
    """Why a queue has no share, though it exists; empty if it has one."""
    if name in tree.invalid:
        return tree.invalid[name]
    match tree.broken(name) if name in tree else None:
        case Problem.CYCLE:
            cycle = tree.cycle(name)
            return (
                f"the parents form a cycle ({' -> '.join((*cycle, cycle[0]))}): change spec.parentQueue of one of them"
            )
        case Problem.NO_PARENT:
            top = tree.queues[tree.path(name)[-1]]
            own = top.name == name
            parent = f"its parent queue {top.parent}" if own else f"queue {top.parent}, the parent of queue {top.name},"
            if top.parent in tree.invalid:
                return f"{parent} is invalid: {tree.invalid[top.parent]}"
            return f"{parent} does not exist: create it, or change spec.parentQueue of queue {top.name}"
        case _:
            return ""


def closed(request: Request, gate: Closed) -> Refusal:
    """A limit, or the quota of pods that are not preemptible."""
    code = Code.OVER_LIMIT if gate.gate is Gate.LIMIT else Code.OVER_QUOTA
    return refusals.of_pod(request, code, _closed_words(gate))


def several_queues(request: Request, queues: Iterable[QueueName]) -> Refusal:
    named = " and ".join(sorted(queues))
    text = f"the pods of the group name more than one queue: {named}; name the same one for all of them"
    return refusals.of_pod(request, Code.INCOMPLETE, text)


def incomplete(request: Request, parts: Sequence[Part]) -> Refusal:
    """Pods of the group do not exist yet."""
    return refusals.of_pod(request, Code.INCOMPLETE, _incomplete_words(parts))


def listed(queues: Sequence[QueueName]) -> str:
    """Some of them by name."""
    more = len(queues) - _MOST_NAMES
    return ", ".join(queues[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _closed_words(gate: Closed) -> str:
    name, resource = gate.queue, gate.resource
    used, need = quantities.used_of(resource, gate.used, gate.most), quantities.number(resource, gate.need)
    most = quantities.said(resource, gate.most)
    verb = "is" if need == "1" else "are"
    if gate.gate is Gate.LIMIT:
        if gate.need > gate.most:
            return f"queue {name} can never run this: its limit is {most}, and {need} {verb} requested at once"
        return f"queue {name} would exceed its limit: {used} in use, {need} more requested"
    within = "pods that are not preemptible"
    if gate.need > gate.most:
        return (
            f"queue {name} can never run this: {within} stay within its quota of {most}, "
            f"and {need} {verb} requested at once"
        )
    return f"queue {name} would exceed its quota with {within}: {used} in use by these, {need} more requested"


def _incomplete_words(parts: Sequence[Part]) -> str:
    whole, subgroups = [part for part in parts if not part.subgroup], [part for part in parts if part.subgroup]
    said = [f"the group needs {part.minimum} pods to start, and {_existing(part)}" for part in whole]
    said += [
        f"subgroup {part.subgroup} has {part.exist + part.gated} of {part.minimum}{_gated(part)}" for part in subgroups
    ]
    missing, create = (
        max(sum(getattr(part, what) for part in whole), sum(getattr(part, what) for part in subgroups))
        for what in ("missing", "to_create")
    )
    pods = "1 pod is missing" if missing == 1 else f"{missing} pods are missing"
    return f"{', '.join(said)}: {pods} from the minimum; {_remedy(create, missing - create)}, or reduce minMember"


def _remedy(create: int, gated: int) -> str:
    if not gated:
        return f"create {'it' if create == 1 else 'them'}"
    if not create:
        return f"remove {'its' if gated == 1 else 'their'} scheduling gates"
    return f"create {create}, and remove the scheduling gates of {gated}"


def _existing(part: Part) -> str:
    count = part.exist + part.gated
    return ("1 exists" if count == 1 else f"{count} exist") + _gated(part)


def _gated(part: Part) -> str:
    return f", {part.gated} of them gated" if part.gated else ""


def _whose(name: QueueName) -> str:
    return f", and pods without the label {names.QUEUE_LABEL} belong to it" if name == DEFAULT_QUEUE else ""


def _near(tree: QueueTree, name: QueueName) -> str:
    leaves = [each for each in tree.queues if tree.problem(each) is None]
    near = [QueueName(each) for each in get_close_matches(name, leaves, _MOST_NAMES)]
    if near:
        return f" (did you mean {' or '.join(near)}?)"
    return f" (there are {listed(leaves)})" if leaves else ""
