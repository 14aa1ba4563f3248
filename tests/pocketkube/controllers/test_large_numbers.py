"""T02: objects with huge numbers in them, on an embedded cluster: its other clients go on."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.apis import kinds
from apportion.apis.errors import InputError
from apportion.cluster import errors
from pocketkube.controllers.scheduling import rule_limits
from pocketkube.controllers.workloads import job_rules, pod_sets, rollout_sizes
from tests.pocketkube.cluster import RunningCluster, template

Json = dict[str, Any]
THOUSAND_MILLION = 1_000_000_000


def workload(name: str, **spec: Any) -> Json:
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template(labels), **spec},
    }


def job(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"template": template({}, restartPolicy="Never"), **spec}}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (kinds.DEPLOYMENTS, workload("w", replicas=2 * THOUSAND_MILLION)),
        (kinds.REPLICA_SETS, workload("w", replicas=2 * THOUSAND_MILLION)),
        (
            kinds.STATEFUL_SETS,
            workload("w", replicas=2 * THOUSAND_MILLION, podManagementPolicy="Parallel", serviceName="s"),
        ),
        (kinds.JOBS, job("w", parallelism=THOUSAND_MILLION, completions=THOUSAND_MILLION)),
        (kinds.JOBS, job("w", parallelism=100_000, completions=THOUSAND_MILLION, completionMode="Indexed")),
    ],
    ids=["deployment", "replica set", "stateful set", "job", "indexed job"],
)
async def test_t02_a_workload_of_thousands_of_millions_of_pods_stops_no_other(
    cluster: RunningCluster, kind: kinds.Kind, body: Json
) -> None:
    await cluster.create(kind, body)
    await cluster.until_true(lambda: cluster.list(kinds.PODS), lambda found: len(found) > 20)
    await cluster.create(kinds.JOBS, job("other", completions=1))
    await cluster.until(kinds.JOBS, "other", lambda found: (found["status"].get("active") or 0) == 1)


@pytest.mark.parametrize("count", [501, 2_000])
async def test_t02_a_pod_with_too_many_containers_is_rejected_by_its_node(cluster: RunningCluster, count: int) -> None:
    containers = [{"name": f"c{index}", "image": "busybox"} for index in range(count)]
    await cluster.create(kinds.PODS, {"metadata": {"name": "large"}, "spec": {"containers": containers}})
    found = await cluster.until(kinds.PODS, "large", lambda pod: pod["status"]["phase"] == "Failed")
    assert found["status"]["reason"] == "TooManyContainers"
    assert found["status"]["message"] == f"Pod was rejected: {count} containers: a node runs at most 500 in one pod"


async def test_t02_twelve_thousand_containers_are_too_large_for_the_store(cluster: RunningCluster) -> None:
    containers = [{"name": f"c{index}", "image": "busybox"} for index in range(12_000)]
    with pytest.raises(errors.ApiError, match="etcdserver: request is too large"):
        await cluster.create(kinds.PODS, {"metadata": {"name": "large"}, "spec": {"containers": containers}})


async def test_t02_a_pod_with_too_many_scheduling_rules_stays_pending_and_is_told_why(cluster: RunningCluster) -> None:
    tolerations = [{"key": f"k{index}", "operator": "Exists"} for index in range(rule_limits.MOST_NODE_RULES + 1)]
    spec = {"containers": [{"name": "c", "image": "busybox"}], "tolerations": tolerations}
    await cluster.create(kinds.PODS, {"metadata": {"name": "strict"}, "spec": spec})

    def told(events: list[Json]) -> bool:
        return any("spec.tolerations" in event["message"] and "at most 2000" in event["message"] for event in events)

    await cluster.until_true(lambda: cluster.list(kinds.EVENTS), told)


def test_t02_rules_of_all_kinds_are_counted() -> None:
    term = {"topologyKey": "zone"}
    expression = {"key": "a", "operator": "In", "values": ["x"] * 2_000}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    for spec in (
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term] * 101}}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}},
        {"topologySpreadConstraints": [term] * 101},
        {"nodeSelector": {f"k{index}": "v" for index in range(2_001)}},
        {"containers": [{"ports": [{"hostPort": index} for index in range(1, 2_002)]}]},
    ):
        with pytest.raises(InputError, match="scheduling rules"):
            rule_limits.check(spec)
    rule_limits.check({"containers": [{}], "tolerations": [{}] * 2_000})


def test_t02_the_indexes_of_a_huge_job_are_not_listed() -> None:
    spec = {"completions": THOUSAND_MILLION, "completionMode": "Indexed"}
    free = job_rules.free_indexes({"spec": spec}, {"completedIndexes": "0-4,7"}, [], THOUSAND_MILLION)
    assert [next(free) for _ in range(4)] == [5, 6, 8, 9]
    claimed = {"spec": spec, "status": {"completedIndexes": f"0-{THOUSAND_MILLION}"}}
    assert job_rules.counted(claimed, [])["succeeded"] <= job_rules.MOST_INDEXES + 1
    assert next(job_rules.free_indexes({"spec": {}}, {}, [], THOUSAND_MILLION)) is None


def test_t02_percentages_of_any_length_are_numbers() -> None:
    assert rollout_sizes.bounds(10, "25%", "25%") == rollout_sizes.Bounds(3, 2)
    assert rollout_sizes.bounds(10, "9" * 10_000 + "%", "0%").surge > 0


def test_t02_one_reconciliation_makes_as_many_pods_as_that_of_kube_controller_manager() -> None:
    assert pod_sets.MOST_PER_SYNC == 500
