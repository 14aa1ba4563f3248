"""The log of changes: every reader sees each change once, and one that lags is told to look at everything."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from apportion.apis import names
from apportion.core.cluster_changes import Change, Happened
from apportion.core.reasons import Code
from apportion.view.change_log import ChangeLog
from apportion.view.scene import scene
from apportion.view.view import View
from tests.builders import accelerators, nodes
from tests.builders.accelerators import gpu
from tests.view.objects import CLAIMS, NAMESPACES, NODES, PODS, REPORTS, Cluster, Follower
from tests.view.streams import claim, pod


def test_each_reader_sees_every_change_once_and_in_order() -> None:
    log = ChangeLog()
    first, second = log.reader(), log.reader()
    log.note(Happened.POD_CAME, "n1", "a")
    assert first.take() == [Change(Happened.POD_CAME, "n1", "a")]
    log.note(Happened.POD_GONE, "n1", "a")
    assert first.take() == [Change(Happened.POD_GONE, "n1", "a")]
    assert [change.kind for change in second.take()] == [Happened.POD_CAME, Happened.POD_GONE]
    assert first.take() == second.take() == []


def test_the_log_is_bounded_and_a_reader_that_lags_is_told_so_once() -> None:
    log = ChangeLog(most=3)
    reader = log.reader()
    for number in range(4):
        log.note(Happened.NODE_CHANGED, f"n{number}")
    assert reader.take() == [Change(Happened.EVERYTHING)]
    assert reader.take() == []
    for number in range(3):
        log.note(Happened.NODE_CHANGED, f"n{number}")
    assert [change.node for change in reader.take()] == ["n0", "n1", "n2"]


def test_a_position_can_be_kept_and_read_from_later() -> None:
    log = ChangeLog()
    log.note(Happened.NODE_CHANGED, "n1")
    position = log.position
    log.note(Happened.NODE_CHANGED, "n2")
    assert [change.node for change in log.since(position)] == ["n2"]
    assert log.since(log.position) == []


def test_listeners_are_woken_at_every_change() -> None:
    log, woken = ChangeLog(), []
    log.on_change(lambda: woken.append(log.position))
    log.note(Happened.STORAGE_CHANGED)
    log.note(Happened.STORAGE_CHANGED)
    assert woken == [1, 2]


def test_what_is_only_displayed_wakes_readers_that_draw_and_nobody_else() -> None:
    log, drawn, decided = ChangeLog(), [], []
    log.on_change(lambda: drawn.append(log.position), display=True)
    log.on_change(lambda: decided.append(log.position))
    log.note(Happened.DISPLAY_CHANGED)
    log.note(Happened.NODE_CHANGED, "n1")
    assert (drawn, decided) == ([1, 2], [2])


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.put(NAMESPACES, {"metadata": {"name": "default"}})
    made.put(NODES, nodes.node("n1", resources={**nodes.slice_devices(1), names.NVIDIA_GPU: 2}))
    made.put(REPORTS, report("uid-a", ""))
    made.put(PODS, accelerators.agent_pod("n1", uid="agent"))
    made.put(PODS, pod("a", {names.NVIDIA_GPU: 1}, node="n1"))
    made.put(PODS, pod("waits", {"nvidia.com/gpu": 2}))
    made.put(CLAIMS, claim(pod("b", {}), "1g.5gb", node="n1", gpu="GPU-0", start=0))
    return made


def report(first: str, second: str, kind: str = "whole", *, used: int | None = None) -> dict[str, Any]:
    """Two whole GPUs with the pods that hold them, and what pod a uses of the first."""
    gpus = [gpu("GPU-0")]
    for number, holder in enumerate((first, second), 1):
        holders = [{"podUID": holder, "kind": kind}] if holder else []
        gpus.append(gpu(f"GPU-{number}", mig=False, holders=holders))
    made = accelerators.accelerator("n1", gpus, agent_uid="agent")
    if used is not None:
        made["status"]["memoryUse"] = [{"podUID": "uid-a", "uuid": "GPU-1", "usedMiB": used}]
    return made


def _waits_with_reason(obj: dict[str, Any]) -> None:
    obj["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "full"}]}


CHANGES: dict[str, Callable[[Cluster], None]] = {
    "the memory that a pod uses": lambda cluster: cluster.put(REPORTS, report("uid-a", "", used=500)),
    "a holder moves": lambda cluster: cluster.put(REPORTS, report("", "uid-a")),
    "a pod is pending": lambda cluster: cluster.put(PODS, pod("new", {})),
    "a pod is pending no longer": lambda cluster: cluster.remove(PODS, "default/waits"),
    "the reason of a pending pod": lambda cluster: cluster.change(PODS, "default/waits", _waits_with_reason),
    "labels of a namespace": lambda cluster: cluster.put(
        NAMESPACES, {"metadata": {"name": "default", "labels": {"team": "a"}}}
    ),
    "the state of a claim": lambda cluster: cluster.change(
        CLAIMS, next(iter(cluster.all(CLAIMS))), lambda obj: obj["status"].update(state="inUse")
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_x05_whatever_changes_an_answer_or_the_picture_moves_the_position(
    cluster: Cluster, change: Callable[[Cluster], None]
) -> None:
    follower = Follower(cluster, View(), random.Random(1))
    follower.catch_up()
    before = follower.view.changes.position
    change(cluster)
    follower.catch_up()
    assert follower.view.changes.position == before + 1
    for kind in (NODES, REPORTS, CLAIMS, PODS, NAMESPACES):
        for key in list(cluster.all(kind)):
            cluster.change(kind, key, lambda _: None)
    follower.catch_up()
    assert follower.view.changes.position == before + 1, "what says the same again is no change"


def test_x05_the_memory_that_a_pod_uses_is_shown_and_nobody_decides_anew(cluster: Cluster) -> None:
    follower = Follower(cluster, View(), random.Random(1))
    follower.catch_up()
    woken: list[int] = []
    follower.view.changes.on_change(lambda: woken.append(1))
    reader, before = follower.view.changes.reader(), follower.view.fleet.record()
    reader.take()
    for used in (500, 40000, None):
        cluster.put(REPORTS, report("uid-a", "", used=used))
        follower.catch_up()
        assert scene(follower.view).nodes["n1"][1].used_mib == used
    assert [change.kind for change in reader.take()] == [Happened.DISPLAY_CHANGED] * 3
    assert not woken
    assert follower.view.fleet.record() == before


def test_s04_labels_of_a_namespace_can_help_a_pod_with_affinity() -> None:
    for code in (Code.NEAR, Code.APART, Code.KEPT_APART):
        assert Happened.NAMESPACE_CHANGED in code.row.helped_by
