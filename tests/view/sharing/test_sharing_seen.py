"""Shared GPUs as people see them: in `top`, in `why` and in a snapshot."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from apportion.apis import names, shared_gpus
from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.cli import drawing, top
from apportion.cli import why as why_command
from apportion.core.policies import Policy
from apportion.view import queue_scene, snapshot, why
from apportion.view.scene import ShownGpu, ShownShare, scene
from apportion.view.why import Answer, PodState
from tests.view import deciding
from tests.view.sharing.sharing_world import RESERVATIONS, SharingWorld

A100_MIB = 40960
USED = {("a", "GPU-n1-1"): 20480, ("b", "GPU-n1-1"): 2500, ("whole", "GPU-n1-2"): 30000}


def gpus_of(world: SharingWorld, node: str) -> list[ShownGpu]:
    return scene(world.view).nodes[node]


def asked(world: SharingWorld, pod: Pod) -> Answer:
    return why.answer(world.view, world.view.pods.get(pod.uid) or pod, Policy())


def drawn(world: SharingWorld, width: int = 120, glyphs: drawing.Glyphs = drawing.ASCII) -> str:
    out = io.StringIO()
    unit = drawing.UNIT_WIDTH if width >= top.WIDE else drawing.NARROW_UNIT_WIDTH
    painter = drawing.Painter(unit_width=unit, glyphs=glyphs)
    Console(file=out, width=width, no_color=True, highlight=False).print(top.picture(painter, scene(world.view)))
    return out.getvalue()


@pytest.fixture
def world() -> SharingWorld:
    """A node with an agent: GPU 0 sliced, GPU 1 shared by pods of two namespaces, GPU 2 whole, GPU 3 free."""
    made = SharingWorld()
    made.node("n1", gpus=4, mig=1)
    made.shares("a", "n1", "GPU-n1-1", mib=20480, fraction="0.5")
    made.shares("b", "n1", "GPU-n1-1", mib=2000, namespace="other")
    made.reservation("n1", "GPU-n1-1", "GPU-n1-1")
    made.pod("whole", gpus=1, node="n1")
    return made


def test_x05_x04_top_shows_a_shared_gpu_with_its_pods_beside_the_other_uses(world: SharingWorld) -> None:
    sliced, shared, whole, free = gpus_of(world, "n1")
    assert sliced.units
    assert shared.shares == (ShownShare("default/a", 500, 20480), ShownShare("other/b", 48, 2000))
    assert (shared.memory_mib, shared.shared_mib, shared.free_mib) == (A100_MIB, 22480, A100_MIB - 22480)
    name = shared_gpus.reservation_name("n1", "group-GPU-n1-1")
    assert (shared.reservation, shared.owner, shared.takes_shares) == (f"{RESERVATIONS}/{name}", "", True)
    assert (whole.owner, whole.shared, whole.free_mib) == ("default/whole", False, 0)
    assert (free.owner, free.shared, free.free_mib) == ("", False, A100_MIB)


def test_x05_a_shared_gpu_is_drawn_by_memory_and_readable_without_colours(world: SharingWorld) -> None:
    for width in (80, 120):
        lines = drawn(world, width).splitlines()
        assert all(len(line) <= width for line in lines)
        text = "\n".join(lines)
        assert "4 GPUs: 0 slices, 1 allocated whole, 1 shared, 2 free" in text
        assert "== 1 20480 MiB ==" in text
        assert "1 default/a 20480 MiB" in text
        assert "2 other/b 2000 MiB" in text
        assert "18480 of 40960 MiB free; reservation pod" in text
    (bar,) = [line for line in drawn(world).splitlines() if "GPU 1" in line]
    inside = bar.split("|")[1]
    assert len(inside) == drawing.WHOLE_UNITS * drawing.UNIT_WIDTH
    assert inside.index(" 2=") == 31, "the first one ends in the middle"


def test_x05_top_shows_the_memory_in_use_beside_the_share(world: SharingWorld) -> None:
    world.node("n1", gpus=4, mig=1, used={**USED, ("gone", "GPU-n1-1"): 7})
    _, shared, whole, free = gpus_of(world, "n1")
    assert [(share.used_mib, share.exceeded) for share in shared.shares] == [(20480, False), (2500, True)]
    assert (shared.used_mib, whole.used_mib, free.used_mib) == (None, 30000, None)
    assert shared.free_mib == A100_MIB - 22480, "a share is what was asked for"
    for width in (80, 120):
        text = drawn(world, width)
        assert all(len(line) <= width for line in text.splitlines())
        assert "1 default/a 20480 MiB, 20480 used" in text
        assert "2 other/b 2000 MiB, 2500 used, above its share" in text
    assert "default/whole, 30000 of 40960 MiB used" in drawn(world)


@pytest.mark.parametrize("unknown", [{}, {"ready": False}, {"healthy": False}], ids=["not told", "agent", "GPU"])
def test_x05_memory_in_use_is_unknown_without_an_agent_that_can_tell(
    world: SharingWorld, unknown: dict[str, Any]
) -> None:
    world.node("n1", gpus=4, mig=1, used=USED if unknown else None, **unknown)
    _, shared, whole, _ = gpus_of(world, "n1")
    assert [share.used_mib for share in shared.shares] == [None, None]
    assert whole.used_mib is None
    assert " used" not in drawn(world)


def test_x05_t04_an_agent_says_nothing_of_the_memory_on_another_node(world: SharingWorld) -> None:
    world.node("n2", used={("b", "GPU-n1-1"): 9999})
    assert [share.used_mib for share in gpus_of(world, "n1")[1].shares] == [None, None]


def test_x05_t02_a_gpu_with_a_hundred_small_shares_is_drawn_in_its_width() -> None:
    world = SharingWorld()
    world.node("n1", gpus=1)
    for number in range(100):
        world.shares(f"tiny-{number}", "n1", "GPU-n1-0", mib=409, fraction="0.01")
    text = drawn(world, 80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "and 80 more" in text


def test_x05_a_gpu_that_takes_no_more_shares_says_so() -> None:
    world = SharingWorld()
    world.node("n1")
    world.shares("a", "n1", "GPU-n1-0", mib=2000)
    world.reservation("n1", "GPU-n1-0", "GPU-n1-1")
    shown = gpus_of(world, "n1")[0]
    assert (shown.takes_shares, shown.free_mib) == (False, 0)
    assert shown.reservation.startswith(RESERVATIONS)
    assert "takes no more shares: reservation pod" in drawn(world)


def test_x05_g12_a_node_that_takes_no_shares_is_marked() -> None:
    world = SharingWorld()
    world.node("n1", shared=False)
    assert "takes no shares (condition GPUSharingSupported of its NodeAccelerator)" in drawn(world)
    assert "1 node has no GPU that takes shares" in asked(world, world.pod("a", fraction="0.5")).sentence


def test_x05_g10_gpus_without_an_agent_are_shown_with_their_uuid_once_it_is_known() -> None:
    world = SharingWorld()
    world.slots("n1", 16000)
    world.slots("hidden", None)
    assert [(gpu.slot, gpu.uuid, gpu.free_mib) for gpu in gpus_of(world, "n1")] == [
        ("n1/0", "", 16000),
        ("n1/1", "", 16000),
    ]
    world.asks(world.pod("a", fraction="0.5"), "n1", "n1/0", mib=8000)
    world.reservation("n1", "n1/0", "GPU-7")
    shown = gpus_of(world, "n1")[0]
    assert (shown.uuid, shown.takes_shares) == ("GPU-7", True)
    world.shares("c", "hidden", "hidden/1", mib=250, uuid="GPU-8", fraction="0.25")
    shown = gpus_of(world, "hidden")[1]
    assert (shown.uuid, shown.memory_mib, shown.free_milli) == ("GPU-8", 0, 750)
    assert shown.shares == (ShownShare("default/c", 250),)
    text = drawn(world)
    assert "GPU-7" in text
    assert "0.75 GPU free; no reservation pod yet; GPU-8" in text
    assert "the agent is not ready" not in text, "there is none"


def test_x05_a_pod_that_is_being_bound_is_shown_on_its_gpu() -> None:
    world = SharingWorld()
    world.node("n1")
    pod = world.pod("a", memory=2000)
    world.asks(pod, "n1", "GPU-n1-0", mib=2000)
    assert gpus_of(world, "n1")[0].shares == (ShownShare("default/a", 48, 2000, bound=False),)
    assert scene(world.view).waiting == [("default/a", "the pod waits for the binder, for node n1")]
    assert "1 default/a 2000 MiB, being bound" in drawn(world)
    shown = queue_scene.queue_scene(world.view)
    assert not shown.lost, "it waits for no queue any more"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "does not exist yet."),
        ({"phase": "Pending"}, "has not reported its GPU yet (Pending)."),
        (
            {
                "phase": "Pending",
                "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            },
            "has not reported its GPU yet (Pending: ImagePullBackOff).",
        ),
        ({"phase": "Running"}, "has not reported its GPU yet (Running)."),
        ({"phase": "Running", "holds": "GPU-n1-0"}, "holds GPU GPU-n1-0."),
        ({"phase": "Running", "holds": "GPU-n1-1"}, "holds GPU GPU-n1-1, and not GPU GPU-n1-0 as planned."),
    ],
)
def test_x01_a_pod_at_the_binder_is_told_where_it_goes_and_what_its_reservation_pod_does(
    status: dict[str, Any] | None, said: str
) -> None:
    world = SharingWorld()
    world.node("n1")
    pod = world.pod("a", fraction="0.5")
    world.asks(pod, "n1", "GPU-n1-0", mib=20480)
    if status is not None:
        world.reservation("n1", "GPU-n1-0", **status)
    answer = asked(world, pod)
    assert (answer.state, answer.node, answer.layer) == (PodState.BINDING, "n1", "")
    gpu = status.get("holds", "GPU-n1-0") if status else "GPU-n1-0"
    waited = f"The pod has been waiting for the binder for {answer.seconds} s"
    start = f"{waited}, for node n1: 20480 of 40960 MiB of GPU {gpu}."
    assert answer.sentence.startswith(start)
    assert answer.sentence.endswith(said)
    assert why_command.as_text(answer).startswith("default/a is being bound")


def test_x01_a_reader_of_one_namespace_is_told_where_the_pod_goes_and_nothing_of_other_pods() -> None:
    world = SharingWorld()
    pod = world.pod("a", fraction="0.5")
    answer = why.reported(pod, "", "a note", world.asks(pod, "n1", "GPU-n1-0", mib=20480))
    assert (answer.state, answer.note) == (PodState.BINDING, "a note")
    assert answer.sentence.endswith(" s, for node n1: GPU GPU-n1-0.")
    assert RESERVATIONS not in answer.sentence


def test_x01_a_pod_whose_request_failed_is_told_the_reason() -> None:
    world = SharingWorld()
    world.node("n1")
    pod = world.pod("a", fraction="0.5")
    world.asks(pod, "n1", "GPU-n1-0", mib=20480, failed="the reservation pod did not start within 40 s")
    answer = asked(world, pod)
    assert (answer.state, answer.layer) == (PodState.WAITING, "placement")
    assert answer.sentence == (
        "Cannot be scheduled now: binding the pod failed and will be retried: "
        "the reservation pod did not start within 40 s."
    )


def test_x01_a_pod_with_a_share_that_runs_is_told_what_it_has(world: SharingWorld) -> None:
    pod = world.view.pods.get(PodUID("uid-a"))
    assert pod is not None
    answer = asked(world, pod)
    assert answer.sentence == "The pod is running on node n1 with 20480 of 40960 MiB of GPU GPU-n1-1."
    assert why_command.as_json(answer)["shares"] == [
        {"gpu": "GPU-n1-1", "group": "group-GPU-n1-1", "mib": 20480, "memoryMiB": 40960}
    ]
    assert "share   20480 of 40960 MiB of GPU GPU-n1-1 (group group-GPU-n1-1)" in why_command.as_text(answer)
    reported = why.reported(pod, "", "a note")
    assert reported.sentence == "The pod is running on node n1 with 20480 MiB of GPU GPU-n1-1."


def test_x01_g10_of_a_gpu_whose_memory_is_unknown_a_pod_has_a_fraction() -> None:
    world = SharingWorld()
    world.slots("n1", None)
    pod = world.shares("a", "n1", "n1/0", "n1/1", mib=250, fraction="0.25")
    said = "The pod is running on node n1 with 0.25 of GPU n1/0 and 0.25 of GPU n1/1."
    assert asked(world, pod).sentence == why.reported(pod, "", "").sentence == said


def test_x01_a_waiting_share_names_no_pod_of_another_namespace(world: SharingWorld) -> None:
    world.shares("c", "n1", "GPU-n1-3", mib=40000, namespace="other")
    answer = asked(world, world.pod("late", memory=40000))
    assert "(needs 40000 MiB; the most free on one GPU is 18480 of 40960 MiB)" in answer.sentence
    assert "request gpu-memory 18480 instead of 40000" in answer.sentence
    assert "other/" not in answer.sentence


def test_x01_g01_while_sharing_is_off_why_says_how_to_enable_it() -> None:
    world = SharingWorld(on=False)
    world.node("n1")
    answer = asked(world, world.pod("a", fraction="0.5"))
    assert "spec.admission.gpuSharing: true in the Config kai-config" in answer.sentence


def test_x03_a_fleet_with_shares_decides_the_same_after_it_was_saved(world: SharingWorld) -> None:
    world.slots("plain", 16000)
    world.slots("hidden", None)
    world.shares("c", "plain", "plain/0", mib=9000, uuid="GPU-7")
    world.reservation("plain", "plain/0", "GPU-8")  # which closes it
    handed_over = world.pod("d", memory=1000)
    world.asks(handed_over, "n1", "GPU-n1-3", mib=1000)
    wants: list[dict[str, Any]] = [
        {"fraction": "0.5"},
        {"fraction": "0.3", "devices": 2},
        {"memory": 16000},
        {"memory": 39000},
        {"memory": 41000},
        {"memory": 2000, "devices": 2},
        {"gpus": 1},
        {"gpus": 3},
    ]
    for number, options in enumerate(wants):
        world.pod(f"waits-{number}", annotations={"example.com/token": "s3cret"}, **options)
    failed = world.pod("waits-again", fraction="0.5")
    world.asks(failed, "n1", "GPU-n1-3", mib=1000, failed="no GPU")
    saved = snapshot.save(world.view)
    assert b"s3cret" not in saved
    loaded = snapshot.load(saved)
    assert loaded.fleet.record() == world.view.fleet.record()
    waiting = [*(f"waits-{number}" for number in range(len(wants))), "waits-again"]
    assert [request.name for request in loaded.waiting] == waiting, "the one at the binder has its place"
    assert loaded.fleet.failed_nodes == {failed.uid: ("n1",)}
    for request in loaded.waiting:
        assert deciding.decided(loaded.fleet, request) == deciding.decided(world.view.fleet, request)
    assert snapshot.save_fleet(loaded.fleet, loaded.waiting) == saved
    assert names.SHARED_GPUS.encode() not in saved
