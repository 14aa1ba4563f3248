"""The observer of the storm over queues finds what it is there for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.storm.queues.cluster_state import GPU, UNITS, ClusterState, ObservedPod, ObservedQueue
from tests.storm.queues.queue_observer import LAG, LATE, QueueObserver

Json = dict[str, Any]
STALE = 30.0


class Watched:
    """An observer whose API and clock are the test."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.observer = QueueObserver(Path(), stale=STALE, clock=lambda: self.now)
        self._events = 0

    def found(self, *, after: float = LAG) -> list[str]:
        """What is known after some seconds."""
        self.now += after
        self.observer.look()
        return self.observer.violations

    def queue(self, name: str, parent: str = "", **gpu: float) -> None:
        self.observer.queue_changed("MODIFIED", queue(name, parent, **gpu))

    def pod(self, name: str, queue: str, *, event: str = "MODIFIED", **more: Any) -> None:
        self.observer.pod_changed(event, pod(name, queue, **more))

    def evicted(self, name: str, why: str) -> None:
        self._events += 1
        meta = {"uid": f"event-{self._events}"}
        event = {"metadata": meta, "reason": "Evicted", "involvedObject": {"uid": name}, "message": why}
        self.observer.event_changed("ADDED", event)


def queue(name: str, parent: str = "", **gpu: float) -> Json:
    return {"metadata": {"name": name}, "spec": {"parentQueue": parent, "resources": {"gpu": gpu}}}


def pod(name: str, queue: str, *, node: str = "", group: str = "", priority: int = 50, resource: str = GPU) -> Json:
    labels = {"storm": "yes", "kai.scheduler/queue": queue}
    annotations = {"pod-group-name": group} if group else {}
    spec: Json = {"containers": [{"resources": {"limits": {resource: "1"}}}], "priority": priority}
    if node:
        spec["nodeName"] = node
    meta = {"name": name, "uid": name, "namespace": "default", "labels": labels, "annotations": annotations}
    return {"metadata": meta, "spec": spec, "status": {}}


@pytest.fixture
def watched() -> Watched:
    made = Watched()
    made.queue("root", quota=2, limit=2)
    made.queue("leaf", "root", quota=1)
    made.queue("other", quota=2)
    return made


def test_q05_a_queue_above_the_limit_of_its_parent_is_found(watched: Watched) -> None:
    for number in range(2):
        watched.pod(f"p{number}", "leaf", node="n1")
    assert not watched.found()
    watched.pod("p2", "leaf", node="n1", resource="mig.das.com/1g.5gb")
    assert watched.found()
    assert "queue root uses 2125 of a limit of 2000" in watched.found()[0]


def test_q05_a_limit_that_was_lowered_counts_a_moment_later(watched: Watched) -> None:
    watched.pod("p0", "leaf", node="n1")
    watched.now += 2 * LATE
    watched.queue("root", quota=2, limit=1)
    watched.pod("p1", "leaf", node="n1")  # decided before
    assert not watched.found()
    watched.pod("p1", "leaf", event="DELETED")
    watched.now += 2 * LATE
    watched.pod("p2", "leaf", node="n1")
    assert len(watched.found()) == 1


@pytest.mark.parametrize(("seen_after", "found"), [(LAG / 2, False), (2 * LAG, True)])
def test_q05_a_limit_that_was_raised_is_seen_after_the_pods_that_use_it(
    watched: Watched, *, seen_after: float, found: bool
) -> None:
    for number in range(3):
        watched.pod(f"p{number}", "leaf", node="n1")
    assert not watched.found(after=0)
    watched.found(after=seen_after)
    watched.queue("root", quota=2, limit=3)
    assert bool(watched.found()) == found


def test_q09_a_group_that_runs_in_parts_for_too_long_is_found(watched: Watched) -> None:
    meta = {"name": "g", "namespace": "default"}
    watched.observer.group_changed("ADDED", {"metadata": meta, "spec": {"minMember": 2}})
    watched.pod("g0", "leaf", node="n1", group="g")
    watched.observer.look()
    watched.now += STALE - 1
    watched.pod("g1", "leaf", group="g")  # pending
    assert not watched.found(after=0)
    assert "1 of at least 2 pods of default/g" in watched.found(after=2)[0]


def test_q06_a_reclaim_from_a_queue_within_its_quota_is_found(watched: Watched) -> None:
    watched.pod("p0", "leaf", node="n1")
    watched.evicted("p0", "reclaimed for t of queue other: queue root uses 3 GPUs and has a fair share of 2 GPUs")
    assert "p0 was evicted: reclaimed for t" in watched.found()[0]
    assert "though root uses 1000 of a quota of 2000" in watched.found()[0]


@pytest.mark.parametrize("lowered", ["root", "leaf"])
def test_q03_q06_a_quota_counts_as_far_as_limits_let_it_be_used(watched: Watched, lowered: str) -> None:
    for number in range(2):
        watched.pod(f"p{number}", "leaf", node="n1")
    parent = "" if lowered == "root" else "root"
    watched.queue(lowered, parent, quota=2, limit=1)
    watched.evicted("p0", "reclaimed for t of queue other: queue root uses 2 GPUs and has a fair share of 1 GPU")
    assert not watched.found()


@pytest.mark.parametrize(
    ("why", "found"),
    [
        ("reclaimed for t of queue other: queue leaf uses 2 GPUs and has a fair share of 1 GPU", ""),
        ("reclaimed for t of queue other: queue leaf uses 1 GPU and has a quota of 1 GPU", "within its share"),
        ("reclaimed for t of queue leaf: queue root uses 3 GPUs and has a quota of 1 GPU", "its own side"),
        ("reclaimed for t of queue leaf: queue other uses 3 GPUs and has a quota of 1 GPU", "because of another queue"),
        ("preempted for t of the same queue leaf: its priority is 75, that of this pod 50", ""),
        ("preempted for t of the same queue leaf: its priority is 50, that of this pod 50", "was evicted"),
        ("it pleased me", "unknown reason"),
    ],
)
def test_q06_an_eviction_without_a_right_is_found(watched: Watched, why: str, found: str) -> None:
    for number in range(2):
        watched.pod(f"p{number}", "leaf", node="n1")
    watched.evicted("p0", why)
    assert bool(watched.found()) == bool(found)
    assert not found or found in watched.found()[0]


def test_q05_the_eviction_of_a_pod_that_is_not_preemptible_is_found(watched: Watched) -> None:
    watched.pod("p0", "leaf", node="n1", priority=100)
    watched.evicted("p0", "preempted for t of the same queue leaf: its priority is 125, that of this pod 100")
    assert "not preemptible" in watched.found()[0]


def state(*pods: Json, free: int = 0, minimum: int = 0, units: set[int] | None = None) -> ClusterState:
    queues = [queue("root", quota=1, limit=2), queue("leaf", "root", quota=1), queue("other", quota=2)]
    return ClusterState(
        queues={each.name: each for each in map(ObservedQueue.of, queues)},
        pods={each.uid: each for each in map(ObservedPod.of, pods)},
        minimums={("default", "g"): minimum} if minimum else {},
        free_gpus={"n1": free},
        free_units={"n1": [set(range(UNITS)) if units is None else units]},
    )


def test_q04_a_pod_that_could_run_is_found_at_rest() -> None:
    waiting = pod("w", "leaf")
    running = [pod(f"r{number}", "leaf", node="n1") for number in range(2)]
    assert state(waiting, free=1).could_run()
    assert not state(waiting).could_run()
    assert not state(waiting, *running, free=1).could_run(), "the limit of its parent is reached"
    firm = pod("w", "leaf", priority=100)
    assert not state(firm, pod("r", "leaf", node="n1", priority=100), free=1).could_run(), "it would exceed the quota"
    assert state(firm, running[0], free=1).could_run()


def test_q04_slices_and_gangs_need_all_their_room() -> None:
    small = pod("s", "leaf", resource="mig.das.com/2g.10gb")
    assert state(small, units={2, 3}).could_run()
    assert not state(small, units={1, 2}).could_run()
    gang = [pod(f"g{number}", "other", group="g") for number in range(3)]
    assert state(*gang, free=2, minimum=2).could_run()
    assert not state(*gang, free=1, minimum=2).could_run()
    assert not state(*gang[:1], free=2, minimum=2).could_run(), "the group is incomplete"
    spare = [gang[0], *(pod(f"r{number}", "other", node="n1", group="g") for number in range(2))]
    assert state(*spare, free=1, minimum=2).could_run()


def test_q06_what_a_queue_within_its_quota_could_reclaim_is_found_at_rest() -> None:
    running = [pod(f"r{number}", "leaf", node="n1") for number in range(2)]
    assert state(pod("w", "other"), *running).could_reclaim()
    assert not state(pod("w", "other"), *running[:1]).could_reclaim(), "nobody is above its quota"
    firm = [pod(f"r{number}", "leaf", node="n1", priority=100) for number in range(2)]
    assert not state(pod("w", "other"), *firm).could_reclaim()
    more = [pod(f"o{number}", "other", node="n1") for number in range(2)]
    assert not state(pod("w", "other"), *running, *more).could_reclaim(), "it has its quota"
