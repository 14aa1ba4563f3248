"""`why` names the queue or the group that keeps a pod waiting, with its numbers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from apportion.apis import names
from apportion.apis.identities import PodUID
from apportion.core.policies import Policy
from apportion.view import why
from apportion.view.view import View
from apportion.view.why import Answer, PodState
from tests.builders import groups, nodes, pods
from tests.view.objects import NODES, POD_GROUPS, PODS, QUEUES, Cluster, Follower


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.put(NODES, nodes.node("n1", resources={"cpu": 4}))
    return made


def pod(cluster: Cluster, name: str, **options: Any) -> None:
    cluster.put(PODS, pods.our_pod(name, uid=f"uid-{name}", **options))


def answer(cluster: Cluster, name: str, *, queues_hidden: bool = False) -> Answer:
    view = View()
    view.group_objects.pod_groups_known()
    view.queues.hidden = queues_hidden
    Follower(cluster, view, random.Random(1)).catch_up()
    found = view.pods.get(PodUID(f"uid-{name}"))
    assert found is not None
    return why.answer(view, found, Policy())


def test_x01_q02_a_queue_that_does_not_exist_is_the_answer(cluster: Cluster) -> None:
    pod(cluster, "a", labels={names.QUEUE_LABEL: "missing"}, limits={"cpu": "1"})
    found = answer(cluster, "a")
    assert (found.state, found.layer) == (PodState.WAITING, "queue")
    assert "missing" in found.sentence
    assert answer(cluster, "a", queues_hidden=True).state is PodState.FITS, "the reader may not see queues"


def test_x01_q05_a_limit_is_the_answer_with_its_numbers(cluster: Cluster) -> None:
    cluster.put(QUEUES, groups.queue("team", resources={"cpu": {"quota": 1000, "limit": 1500}}))
    pod(cluster, "runs", labels={names.QUEUE_LABEL: "team"}, limits={"cpu": "1"}, node="n1")
    pod(cluster, "a", labels={names.QUEUE_LABEL: "team"}, limits={"cpu": "1"})
    found = answer(cluster, "a")
    assert (found.state, found.layer) == (PodState.WAITING, "queue")
    assert "1 of 1.5 cores in use, 1 more requested" in found.sentence
    pod(cluster, "small", labels={names.QUEUE_LABEL: "team"}, limits={"cpu": "500m"})
    assert answer(cluster, "small").state is PodState.FITS


def test_x01_q07_a_group_that_lacks_pods_is_the_answer_and_then_all_of_it_must_fit(cluster: Cluster) -> None:
    cluster.put(POD_GROUPS, groups.pod_group("gang", 3))
    for name in "ab":
        pod(cluster, name, annotations={names.POD_GROUP: "gang"}, limits={"cpu": "1"})
    found = answer(cluster, "a")
    assert (found.state, found.layer) == (PodState.WAITING, "gang")
    assert "the group needs 3 pods to start, and 2 exist: 1 pod is missing" in found.sentence
    pod(cluster, "c", annotations={names.POD_GROUP: "gang"}, limits={"cpu": "1"})
    assert answer(cluster, "a").state is PodState.FITS
    pod(cluster, "other", limits={"cpu": "2"}, node="n1")
    assert answer(cluster, "a").state is PodState.WAITING, "two of three would fit"


def test_x01_q07_a_pod_group_that_does_not_exist_is_the_answer(cluster: Cluster) -> None:
    pod(cluster, "a", annotations={names.POD_GROUP: "gang"}, limits={"cpu": "1"})
    assert "no PodGroup of this name exists" in answer(cluster, "a").sentence


def test_q12_x01_a_queue_that_cannot_be_read_is_the_answer_with_field_value_and_fix(cluster: Cluster) -> None:
    cluster.put(QUEUES, groups.queue("bad", resources={"gpu": {"overQuotaWeight": "NaN"}}))
    pod(cluster, "a", labels={names.QUEUE_LABEL: "bad"}, limits={"cpu": "1"})
    found = answer(cluster, "a")
    assert (found.state, found.layer) == (PodState.WAITING, "queue")
    assert found.sentence == (
        "Cannot be scheduled now: queue bad cannot be used: "
        "spec.resources.gpu.overQuotaWeight: 'NaN': use a number of 0 or more."
    )


def test_x01_q06_where_the_queue_stands_names_no_pod_of_another_namespace(cluster: Cluster) -> None:
    for name in ("mine", "theirs"):
        cluster.put(QUEUES, groups.queue(name, resources={"cpu": {"quota": 2000}}))
    for name in ("secret-1", "secret-2"):
        labels = {names.QUEUE_LABEL: "theirs", "kai.scheduler/preemptibility": "non-preemptible"}
        pod(cluster, name, namespace="other", labels=labels, limits={"cpu": "1"}, node="n1")
    pod(cluster, "runs", labels={names.QUEUE_LABEL: "mine"}, limits={"cpu": "2"}, node="n1")
    pod(cluster, "a", labels={names.QUEUE_LABEL: "mine"}, limits={"cpu": "1"})
    found = answer(cluster, "a")
    assert "Queue mine: 2 of a fair share of 2 cores in use (quota 2); 1 more would exceed it" in found.sentence
    assert "secret" not in found.sentence
    assert found.refusal is not None
    assert found.refusal.standing is not None
    assert found.refusal.standing.resource == "cpu"
