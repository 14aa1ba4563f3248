"""A BindRequest that is not carried out, as `why` and `top` tell it: by the time, by the Lease of the binder if it can
be read, and in the words of the pod's condition."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apportion.apis.pods import Pod, PodCondition
from apportion.cli import why as why_command
from apportion.core.policies import Policy
from apportion.core.reasons import Code
from apportion.view import why
from apportion.view.scene import scene
from apportion.view.sharing.binder_state import BinderState
from apportion.view.sharing.handed_over import LONGEST_SECONDS, NO_PROGRESS_SECONDS
from apportion.view.why import Answer, PodState
from tests.view.sharing.sharing_world import RESERVATIONS, SharingWorld

CHECK = "check `kubectl get pods -n sharing -l app=binder`"
NO_BINDER = (
    f"Cannot be scheduled now: the pod has a place, but has not been bound for more than {NO_PROGRESS_SECONDS} s: "
    f"no binder has carried out its BindRequest for node n1; {CHECK}."
)
LATE = NO_PROGRESS_SECONDS + 5


def binder(*, leads: bool | None) -> BinderState:
    return BinderState("sharing", leads=leads)


def asked(seconds: int, *, leads: bool | None, told: str = "", **reservation: Any) -> tuple[Answer, SharingWorld]:
    world = SharingWorld()
    world.node("n1")
    pod = with_condition(world.pod("a", fraction="0.5"), told)
    world.asks(pod, "n1", "GPU-n1-0", mib=20480, seconds=seconds)
    if reservation:
        world.reservation("n1", "GPU-n1-0", **reservation)
    return why.answer(world.view, pod, Policy(), binder=binder(leads=leads)), world


def with_condition(pod: Pod, told: str) -> Pod:
    conditions = [PodCondition(type="PodScheduled", status="False", message=told)] if told else []
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=conditions))


@pytest.mark.parametrize("leads", [None, False])
def test_x01_after_a_while_without_a_binder_why_says_what_the_condition_says(*, leads: bool | None) -> None:
    answer, _ = asked(LATE, leads=leads)
    assert (answer.state, answer.layer, answer.node) == (PodState.BINDING, "placement", "n1")
    assert answer.sentence == NO_BINDER
    assert why_command.as_json(answer)["code"] == Code.BINDING_OVERDUE
    assert why_command.as_text(answer).startswith("default/a is blocked by: placement")


def test_x01_before_that_why_names_the_missing_binder_only_if_its_lease_says_so() -> None:
    for leads in (None, True):
        sentence = asked(7, leads=leads)[0].sentence
        assert sentence.startswith("The pod has been waiting for the binder for 7 s, for node n1: 20480 of 40960 MiB")
        assert CHECK not in sentence
    answer, _ = asked(7, leads=False)
    assert answer.sentence.endswith(f"There is no leading binder: {CHECK}.")
    assert not answer.layer


def test_x01_a_binder_that_leads_may_be_busy_unless_the_scheduler_says_that_nothing_happens() -> None:
    assert not asked(LATE, leads=True, holds="GPU-n1-0")[0].layer
    assert asked(LATE, leads=True, told=NO_BINDER)[0].sentence == NO_BINDER
    assert asked(LONGEST_SECONDS + 5, leads=True, holds="GPU-n1-0")[0].sentence == NO_BINDER


def test_x01_a_reservation_pod_that_does_not_start_is_named_with_what_it_says() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "c", "state": waiting}]}
    for leads in (True, None):
        answer, world = asked(LATE, leads=leads, **status)
        pod = world.view.shares.reservation_of("group-GPU-n1-0")
        assert pod is not None
        name = pod.metadata.name
        assert f"reservation pod {RESERVATIONS}/{name} on node n1 has not reported its GPU yet" in answer.sentence
        assert "(Pending: ImagePullBackOff)" in answer.sentence
        assert answer.sentence.endswith(f"check `kubectl describe pod -n {RESERVATIONS} {name}`.")


def test_x01_a_reader_of_one_namespace_gets_the_words_of_the_condition_or_goes_by_the_time() -> None:
    world = SharingWorld()
    pod = world.pod("a", fraction="0.5")
    late = world.asks(pod, "n1", "GPU-n1-0", mib=20480, seconds=LATE)
    assert why.reported(pod, "", "", late, binder(leads=None)).sentence == NO_BINDER
    told = NO_BINDER.replace(CHECK, "other words")
    assert why.reported(with_condition(pod, told), "", "", late, binder(leads=None)).sentence == told


def test_x05_top_shows_what_the_pod_was_told() -> None:
    world = SharingWorld()
    world.node("n1")
    pod = world.pod("a", fraction="0.5")
    world.asks(pod, "n1", "GPU-n1-0", mib=20480, seconds=LATE)
    world.view.pods.changed(pod, with_condition(pod, NO_BINDER))
    assert scene(world.view).waiting == [("default/a", NO_BINDER)]
