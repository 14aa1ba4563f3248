"""The recorded cases are what a real kube-scheduler says, today as on the day of recording."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.differential import cases, judging, recording, worlds
from tests.environments import binaries
from tests.environments.fixtures import require

SOAK = os.environ.get("APPORTION_SOAK") == "1"


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[recording.Oracle]:
    require(binaries.CONTROL_PLANE)
    oracle = recording.Oracle(tmp_path_factory.mktemp("oracle"))
    yield oracle
    oracle.close()


def test_there_are_cases_of_every_kind() -> None:
    asked = [case for world in cases.load() for case in world["asked"]]
    assert len(asked) >= 200
    for words in (
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient example.com/gadget",
        "Too many pods",
        "untolerated taint",
        "were unschedulable",
        "node affinity/selector",
        "free ports",
        "pod affinity rules",
        "pod anti-affinity rules",
        "existing pods anti-affinity rules",
        "topology spread constraints,",
        "missing required label",
        "PersistentVolume's node affinity",
        "available persistent volumes to bind",
        "unbound immediate PersistentVolumeClaims",
    ):
        assert sum(words in case["message"] + "," for case in asked) >= 5, words


@pytest.mark.real
def test_kube_scheduler_still_answers_as_recorded(oracle: recording.Oracle) -> None:
    recorded = random.sample(list(cases.load()), 3)
    for world in recorded:
        assert oracle.answer(worlds.world(world["seed"])) == world


@pytest.mark.real
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_s04_the_core_agrees_with_kube_scheduler_about_new_worlds(oracle: recording.Oracle) -> None:
    seed = random.randrange(1_000_000, 2_000_000)
    count = 200 if SOAK else 5
    print(f"seed {seed}, {count} worlds")
    found = [found for number in range(count) for found in _lasting_disagreements(oracle, seed + number)]
    assert not found, "\n".join(map(str, found[:20]))


def _lasting_disagreements(oracle: recording.Oracle, seed: int) -> list[judging.Disagreement]:
    """Those that come twice: once may be a scheduler that had not yet heard of every object of the world."""
    first = judging.disagreements(oracle.answer(worlds.world(seed)))
    return judging.disagreements(oracle.answer(worlds.world(seed))) if first else []
