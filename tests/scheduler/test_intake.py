"""Which pending pods reach the backlog, and which get an event about an invalid request."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.apis import names
from apportion.apis.errors import InputError
from apportion.apis.pods import Pod
from apportion.scheduler.backlog import Backlog
from apportion.scheduler.intake import Intake
from apportion.view.view import View
from tests.builders.pods import our_pod, typed


class Waiting:
    def __init__(self) -> None:
        self.view = View()
        self.backlog = Backlog(lambda: 0.0)
        self.problems: list[str] = []
        self.offers = 0
        self.intake = Intake(self.view.waiting, self.backlog, on_offer=self._offered, on_problem=self._problem)

    def pod(self, *, before: Pod | None = None, **options: Any) -> Pod:
        made = typed(our_pod("a", uid="uid-a", **options))
        self.view.pods.changed(before, made)
        return made

    def _offered(self) -> None:
        self.offers += 1

    def _problem(self, pod: Pod, error: InputError) -> None:
        self.problems.append(f"{pod.metadata.name}: {error}")


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_s04_our_pods_wait_until_they_are_bound_gated_or_gone(waiting: Waiting) -> None:
    pod = waiting.pod(limits={"cpu": "1"})
    assert (len(waiting.backlog), waiting.offers) == (1, 1)
    waiting.pod(before=pod, limits={"cpu": "1"})
    assert waiting.offers == 1
    gated = waiting.pod(before=pod, limits={"cpu": "1"}, gates=["example.com/wait"])
    assert len(waiting.backlog) == 0
    free = waiting.pod(before=gated, limits={"cpu": "1"})
    assert len(waiting.backlog) == 1
    bound = waiting.pod(before=free, limits={"cpu": "1"}, node="n1")
    assert len(waiting.backlog) == 0
    waiting.view.pods.changed(bound, None)
    assert len(waiting.backlog) == 0


def test_s04_pods_of_other_schedulers_are_left_to_them(waiting: Waiting) -> None:
    waiting.pod(limits={"cpu": "1"}, scheduler="somebody-else")
    assert len(waiting.view.waiting) == 1
    assert len(waiting.backlog) == 0


def test_s04_what_can_never_be_right_is_told_and_does_not_wait(waiting: Waiting) -> None:
    pod = waiting.pod(limits={"cpu": "1"})
    waiting.pod(before=pod, limits={"cpu": "1"}, annotations={names.POLICY: "luck"})
    assert len(waiting.backlog) == 0
    assert len(waiting.problems) == 1
    assert "luck" in waiting.problems[0]
