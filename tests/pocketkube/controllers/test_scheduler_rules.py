"""The default scheduler decides as kube-scheduler does, and refuses pods in the words that it was recorded with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from pocketkube.controllers.scheduling import refusals
from pocketkube.controllers.scheduling.cluster_state import ClusterState, NodeFacts, PodFacts
from pocketkube.controllers.scheduling.filters import Filters
from pocketkube.controllers.scheduling.refusals import Refusal
from tests.differential import cases

# This scheduler leaves volumes to the volume controller; "recorded" is a word of the recorder.
OTHERS = ("PersistentVolume", "volume", "recorded")

PODS_FULL = Refusal("Too many pods", preemption_helps=True)
TOO_LITTLE = Refusal("Insufficient cpu", preemption_helps=True)
TOO_SMALL = Refusal("Insufficient cpu")
TAINTED = Refusal("node(s) had untolerated taint(s)")

Json = dict[str, Any]


def recorded() -> Iterator[tuple[ClusterState, Json, int]]:
    """Every question that was recorded, with the cluster it was asked on."""
    for world in cases.load():
        cluster = cluster_of(world)
        for asked in world["asked"]:
            yield cluster, asked, world["seed"]


def cluster_of(world: Json) -> ClusterState:
    cluster = ClusterState()
    for name, labels in world["namespaces"].items():
        cluster.set_namespace(name, labels)
    for raw in world["nodes"]:
        cluster.set_node(NodeFacts.of(msgspec.convert(raw, Node)))
    for raw in world["running"]:
        if raw["status"]["phase"] not in {"Succeeded", "Failed"}:
            cluster.add_pod(facts_of(raw), raw["spec"]["nodeName"])
    return cluster


def facts_of(raw: Json) -> PodFacts:
    # Recordings have no uids; a name is unique in its world.
    metadata = raw["metadata"] | {"uid": f"{raw['metadata']['namespace']}-{raw['metadata']['name']}"}
    return PodFacts.of(msgspec.convert(raw | {"metadata": metadata}, Pod))


def test_nodes_are_filtered_as_kube_scheduler_does() -> None:
    compared = 0
    for cluster, asked, seed in recorded():
        if "volumes" in asked["pod"]["spec"]:
            continue
        filters = Filters(cluster, facts_of(asked["pod"]))
        fitting = {node.name for node in cluster if not filters.against(node)}
        assert fitting == set(asked["feasible"]), f"world {seed}, {asked['pod']['metadata']['name']}"
        compared += 1
    assert compared > 300


def test_pods_that_fit_nowhere_are_told_so_in_kube_schedulers_words() -> None:
    compared = 0
    for cluster, asked, seed in recorded():
        if any(words in asked["message"] for words in OTHERS):
            continue
        filters = Filters(cluster, facts_of(asked["pod"]))
        refused = [filters.against(node) for node in cluster]
        ours = refusals.sentence(refused).partition(", preemption: ")[0]
        assert ours == asked["message"], f"world {seed}"
        compared += 1
    assert compared > 140


@pytest.mark.parametrize(
    ("refused", "preemption"),
    [
        ([[TOO_LITTLE]], "1 No preemption victims found for incoming pod"),
        ([[TOO_SMALL]], "1 Preemption is not helpful for scheduling"),
        ([[PODS_FULL, TOO_SMALL]], "1 Preemption is not helpful for scheduling"),
        ([[PODS_FULL]], "1 No preemption victims found for incoming pod"),
        (
            [[PODS_FULL], [TOO_LITTLE], [TAINTED]],
            "1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod",
        ),
    ],
)
def test_what_preemption_could_do_is_told_per_node(refused: list[list[Refusal]], preemption: str) -> None:
    said = refusals.sentence(refused)
    assert said.endswith(f", preemption: 0/{len(refused)} nodes are available: {preemption}.")


def test_a_pod_that_never_preempts_is_told_so() -> None:
    said = refusals.sentence([[PODS_FULL]], preempts=False)
    assert said == (
        "0/1 nodes are available: 1 Too many pods. no new claims to deallocate, "
        "preemption: not eligible due to preemptionPolicy=Never."
    )
