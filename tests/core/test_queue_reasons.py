"""Reasons of queues and groups in words: what is wrong, with names and numbers, and what to do."""

from __future__ import annotations

import pytest

from apportion.apis import names
from apportion.apis.identities import QueueName
from apportion.core import gangs, group_turns
from apportion.core.explanations import queue_reasons
from apportion.core.groups import Gang, Subgroup
from apportion.core.queues.tree import QueueTree
from apportion.core.refusals import Refusal
from tests.core.evictions.worlds import World, queue

LABEL = f"the label {names.QUEUE_LABEL}"
BAD = "spec.resources.gpu.quota: 'NaN': use a number of 0 or more"


def tree() -> QueueTree:
    queues = [
        queue("vision"),
        queue("speech"),
        queue("team"),
        *(queue(f"child-{number}", parent="team") for number in range(5)),
        queue("x", parent="y"),
        queue("y", parent="x"),
        queue("under-x", parent="x"),
        queue("orphan", parent="nowhere"),
        queue("under-orphan", parent="orphan"),
        queue("under-bad", parent="bad"),
    ]
    return QueueTree(queues, {QueueName("bad"): BAD})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vision", ""),
        ("visionn", f"queue visionn does not exist: create it, or name another one in {LABEL} (did you mean vision?)"),
        (
            "zzz",
            (
                f"queue zzz does not exist: create it, or name another one in {LABEL} "
                "(there are child-0, child-1, child-2 and 4 more)"
            ),
        ),
        (
            "team",
            (
                "queue team has child queues, and only queues without children run pods: "
                f"name one of them in {LABEL} (child-0, child-1, child-2 and 2 more)"
            ),
        ),
        ("bad", f"queue bad cannot be used: {BAD}"),
        ("under-bad", f"queue under-bad cannot be used: its parent queue bad is invalid: {BAD}"),
        (
            "under-x",
            (
                "queue under-x cannot be used: the parents form a cycle (x -> y -> x): "
                "change spec.parentQueue of one of them"
            ),
        ),
        (
            "under-orphan",
            (
                "queue under-orphan cannot be used: queue nowhere, the parent of queue orphan, does not exist: "
                "create it, or change spec.parentQueue of queue orphan"
            ),
        ),
    ],
)
def test_q02_q12_a_queue_that_runs_no_pods_says_why_and_what_to_do(name: str, said: str) -> None:
    assert queue_reasons.problem_of(tree(), QueueName(name)) == said


def test_q02_in_a_cluster_without_usable_queues_none_are_listed() -> None:
    assert queue_reasons.problem_of(QueueTree(), QueueName("a")).endswith(f"name another one in {LABEL}")


@pytest.mark.parametrize(
    ("pods", "minimum", "subgroups", "running", "said"),
    [
        ("ww", 3, (), "", "the group needs 3 pods to start, and 2 exist: 1 pod is missing from the minimum; create it"),
        ("w", 3, (), "w", "the group needs 3 pods to start, and 2 exist: 1 pod is missing from the minimum; create it"),
        (
            "ww",
            2,
            (Subgroup("h", 1), Subgroup("w", 1)),
            "",
            "subgroup h has 0 of 1: 1 pod is missing from the minimum; create it",
        ),
        (
            "w",
            0,
            (Subgroup("h", 1), Subgroup("w", 3)),
            "",
            (
                "the group needs 4 pods to start, and 1 exists, subgroup h has 0 of 1, subgroup w has 1 of 3: "
                "3 pods are missing from the minimum; create them"
            ),
        ),
    ],
)
def test_q07_a_group_whose_pods_are_missing_says_how_many_of_which_subgroup(
    pods: str, minimum: int, subgroups: tuple[Subgroup, ...], running: str, said: str
) -> None:
    world = World({"n": 8}, [queue("a")])
    gang = Gang("default/g", minimum, subgroups)
    world.fleet.set_gang(gang)
    for number, part in enumerate(running):
        world.run(world.request(f"r{number}", "a", gpus=1, group="g", subgroup=part))
    waiting = [world.request(f"p{number}", "a", gpus=1, group="g", subgroup=part) for number, part in enumerate(pods)]
    refusal = group_turns.next_turn(world.fleet, waiting)
    assert isinstance(refusal, Refusal)
    assert refusal.detail == f"{said}, or reduce minMember"
    assert gangs.incomplete(world.fleet, gang, waiting)


@pytest.mark.parametrize(
    ("pods", "gated", "minimum", "said"),
    [
        (
            "ww",
            {"": 2},
            4,
            "4 exist, 2 of them gated: 2 pods are missing from the minimum; remove their scheduling gates",
        ),
        ("w", {"": 1}, 2, "2 exist, 1 of them gated: 1 pod is missing from the minimum; remove its scheduling gates"),
        ("w", {"": 4}, 2, "5 exist, 4 of them gated: 1 pod is missing from the minimum; remove its scheduling gates"),
        (
            "w",
            {"": 1},
            4,
            (
                "2 exist, 1 of them gated: 3 pods are missing from the minimum; "
                "create 2, and remove the scheduling gates of 1"
            ),
        ),
    ],
)
def test_q07_a_group_whose_pods_are_gated_says_so(pods: str, gated: dict[str, int], minimum: int, said: str) -> None:
    world = World({"n": 8}, [queue("a")])
    world.fleet.set_gang(Gang("default/g", minimum, gated=tuple(gated.items())))
    waiting = [world.request(f"p{number}", "a", gpus=1, group="g") for number in range(len(pods))]
    refusal = group_turns.next_turn(world.fleet, waiting)
    assert isinstance(refusal, Refusal)
    assert refusal.detail == f"the group needs {minimum} pods to start, and {said}, or reduce minMember"


def test_q07_gated_pods_count_for_their_subgroup() -> None:
    world = World({"n": 8}, [queue("a")])
    parts = (Subgroup("h", 1), Subgroup("w", 2))
    world.fleet.set_gang(Gang("default/g", 3, parts, gated=(("h", 2),)))
    waiting = [world.request("p", "a", gpus=1, group="g", subgroup="w")]
    refusal = group_turns.next_turn(world.fleet, waiting)
    assert isinstance(refusal, Refusal)
    assert refusal.detail == (
        "the group needs 3 pods to start, and 3 exist, 2 of them gated, subgroup h has 2 of 1, 2 of them gated, "
        "subgroup w has 1 of 2: 2 pods are missing from the minimum; "
        "create 1, and remove the scheduling gates of 1, or reduce minMember"
    )
