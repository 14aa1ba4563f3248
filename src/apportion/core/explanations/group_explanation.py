"""Why a group has no place: the reason of its first pod without one, when the pods before it have theirs.

Worked out in steps like the explanation of one pod. During a step the pods before it are in the fleet, and what is
reserved for the group is free; between two steps the fleet is as it was.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from apportion.apis.errors import LedgerError
from apportion.apis.request import Request
from apportion.core import group_decision
from apportion.core.explanations.explanation import Explanation
from apportion.core.fleet import Fleet
from apportion.core.groups import Group
from apportion.core.operations import Operation, Unreserve
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.core.refusals import Refusal

_MOST_REPEATS = 3  # if others take the places of the pods that have one, again and again


class GroupExplanation:
    """For one class of groups. It can be kept: that of one pod looks only at what has changed."""

    def __init__(self, fleet: Fleet, group: Group, policy: Policy) -> None:
        self.group = group
        self._fleet = fleet
        self._policy = policy
        self._before: list[Operation] = []  # for the pods that have a place
        self._explanation: Explanation | None = None

    def steps(self) -> Generator[None, None, Refusal | None]:
        """The refusal is what the generator returns; None if all pods have a place, or if it cannot be found out."""
        for _ in range(_MOST_REPEATS):
            try:
                found = yield from self._first_without_place()
                return found if found is None or isinstance(found, Refusal) else (yield from self._explain(found))
            except LedgerError:  # a place was taken in the meantime
                self._explanation = None
                yield
        return None

    def _first_without_place(self) -> Generator[None, None, Request | Refusal | None]:
        before: list[Operation] = [Unreserve(each) for each in self._fleet.reservations_for(self.group.key)]
        refused: Request | Refusal | None = self.group.members[0] if len(self.group.members) == 1 else None
        for member in self.group.members if refused is None else ():
            with self._assuming(before):
                alone = Group.of(member, key=self.group.key)
                outcome = group_decision.decide(self._fleet, alone, self._policy, explained=False, observed=False)
            if isinstance(outcome, Refusal):
                refused = member if outcome.code is Code.NOT_PLACED else outcome
                break
            before += outcome.operations
            yield
        if before != self._before or (self._explanation and self._explanation.request is not refused):
            self._explanation = None
        self._before = before
        return refused

    def _explain(self, request: Request) -> Generator[None, None, Refusal]:
        if self._explanation is None:
            self._explanation = Explanation(self._fleet, request, self._policy)
        steps = self._explanation.steps()
        while True:
            with self._explanation.assuming(self._before):
                try:
                    next(steps)
                except StopIteration as end:
                    refusal: Refusal = end.value
                    return refusal
            yield

    @contextmanager
    def _assuming(self, operations: list[Operation]) -> Iterator[None]:
        mark = self._fleet.checkpoint()
        try:
            for operation in operations:
                operation.apply(self._fleet)
            yield
        finally:
            self._fleet.rollback(mark)
