"""Kubelet and agent are killed at random moments while pods come and go on a real node; two equal pods never swap
slices."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

import pytest

from tests.environments.installed import AGENT, NAMESPACE, Installed
from tests.story import twins
from tests.story.workloads import Workloads, assert_no_overlap

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(7200)]

FULL = os.environ.get("APPORTION_SOAK") == "1"
KILLS = 50 if FULL else 3
TWINS = 200 if FULL else 5


def test_s06_s07_s08_kubelet_and_agent_killed_at_random_moments_leak_nothing(
    real_planes: Installed, namespace: str
) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    dice = random.Random(seed)
    work = Workloads(real_planes, namespace)
    work.create("Deployment", "fire", replicas=6)
    for number in range(KILLS):
        work.scale("Deployment", "fire", dice.choice([2, 4, 6, 8]))
        time.sleep(dice.uniform(0, 2))
        victims = dice.choice([("kubelet",), ("agent",), ("kubelet", "agent")])
        if "agent" in victims:
            hit_agent(real_planes)
        if "kubelet" in victims:
            real_planes.node.kubelet.kill()
            time.sleep(dice.uniform(0, 1))
            real_planes.node.start_kubelet()
        assert_no_overlap(real_planes.claims())
        print(f"round {number + 1} of {KILLS}: {' and '.join(victims)} killed")
    work.scale("Deployment", "fire", 8)
    real_planes.node.await_ready()
    if not real_planes.processes(AGENT):
        hit_agent(real_planes)
    real_planes.await_ready(within=120)
    running = work.wait_running(8, within=120)
    assert_no_overlap(real_planes.claims())
    work.assert_each_sees_its_own(running)
    work.delete("Deployment", "fire")
    for pod in work.pods():  # pods that a starting kubelet refused keep their objects
        work.delete_pod(pod["metadata"]["name"])
    work.wait_nothing_left()


def test_s07_twins_started_together_never_swap_and_the_end_of_one_leaves_the_other(
    real_planes: Installed, namespace: str
) -> None:
    twins.play(Workloads(real_planes, namespace), TWINS)


def hit_agent(planes: Installed) -> None:
    """SIGKILL; one that waits to be started again, ever longer from crash to crash, is replaced by a new pod."""
    processes = planes.processes(AGENT)
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pod in () if processes else planes.pods(AGENT):
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        planes.api.delete(path, {"gracePeriodSeconds": 0})
