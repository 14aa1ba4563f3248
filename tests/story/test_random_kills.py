"""Planes are killed at random moments; in the end the same number of pods runs and nothing is left over."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.environments.waiting import until
from tests.story import twins
from tests.story.serving_cluster import PLANES, ServingCluster
from tests.story.workloads import Workloads, assert_no_overlap

FULL = os.environ.get("APPORTION_SOAK") == "1"
KILLS = 30 if FULL else 10
ROUNDS = 100 if FULL else 20
TWINS = 200 if FULL else 10


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_s06_s08_r02_planes_killed_at_random_moments_lose_nothing(served: ServingCluster, story_namespace: str) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    dice = random.Random(seed)
    work = Workloads(served, story_namespace)
    work.create("Deployment", "fire", replicas=10)
    for _ in range(KILLS):
        work.scale("Deployment", "fire", dice.choice([4, 7, 10, 12]))
        time.sleep(dice.uniform(0, 0.8))
        served.kill(dice.choice(sorted(PLANES)))
        assert_no_overlap(served.claims())
        time.sleep(dice.uniform(0, 0.8))
    work.scale("Deployment", "fire", 14)
    until(lambda: served.ready_planes() >= PLANES, "every plane is back", within=90)
    running = work.wait_running(14, within=120)
    assert_no_overlap(served.claims())
    work.assert_each_sees_its_own(running)
    work.delete("Deployment", "fire")
    work.wait_nothing_left()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_s07_twins_started_together_never_swap_and_the_end_of_one_leaves_the_other(
    served: ServingCluster, story_namespace: str
) -> None:
    twins.play(Workloads(served, story_namespace), TWINS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_s07_a_stateful_pod_back_under_its_old_name_gets_its_own_slice(
    served: ServingCluster, story_namespace: str
) -> None:
    work = Workloads(served, story_namespace)
    work.create("StatefulSet", "named", replicas=2)
    work.wait_running(2)
    for _ in range(ROUNDS // 4):
        before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in work.running()}
        work.delete_pod("named-0")
        until(
            lambda before=before: any(
                pod["metadata"]["name"] == "named-0" and pod["metadata"]["uid"] != before["named-0"]
                for pod in work.running()
            ),
            "named-0 is back",
        )
        work.assert_each_sees_its_own(work.wait_running(2))
    work.delete("StatefulSet", "named")
    work.wait_nothing_left()
