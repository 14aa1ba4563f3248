"""Deployments, ReplicaSets, StatefulSets and DaemonSets on an embedded cluster."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.apis import kinds
from apportion.cluster import errors
from tests.pocketkube.cluster import RunningCluster, pod, template

Json = dict[str, Any]
APP = {"app": "web"}


def deployment(replicas: int, *command: str, **spec: Any) -> Json:
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": APP},
            "template": template(APP, *(command or ("sleep", "1000"))),
            **spec,
        },
    }


def active(found: list[Json]) -> list[Json]:
    return [p for p in found if "deletionTimestamp" not in p["metadata"] and p["status"].get("phase") == "Running"]


async def available(cluster: RunningCluster, count: int) -> Json:
    return await cluster.until(
        kinds.DEPLOYMENTS,
        "web",
        lambda d: (
            d["status"].get("availableReplicas", 0) == count
            and d["status"].get("updatedReplicas", 0) == count
            and d["status"].get("replicas", 0) == count
            and d["status"].get("observedGeneration") == d["metadata"]["generation"]
        ),
    )


async def test_a_deployment_scales_and_reports(cluster: RunningCluster) -> None:
    await cluster.create(kinds.DEPLOYMENTS, deployment(3))
    ready = await available(cluster, 3)
    conditions = {each["type"]: each["reason"] for each in ready["status"]["conditions"]}
    assert conditions == {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}
    await cluster.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 1}})
    await available(cluster, 1)
    await cluster.until_pods("app=web", lambda found: len(found) == 1)
    await cluster.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
    await cluster.until_pods("app=web", lambda found: not found)


async def test_a_changed_template_is_rolled_out_with_a_revision_and_can_go_back(cluster: RunningCluster) -> None:
    await cluster.create(kinds.DEPLOYMENTS, deployment(3))
    await available(cluster, 3)
    first = {p["metadata"]["uid"] for p in await cluster.list(kinds.PODS, "app=web")}
    change = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
    await cluster.patch(kinds.DEPLOYMENTS, "web", change)
    await available(cluster, 3)
    second = await cluster.until_pods("app=web", lambda found: len(found) == 3)
    assert not first & {p["metadata"]["uid"] for p in second}
    sets = await cluster.list(kinds.REPLICA_SETS)
    revision = "deployment.kubernetes.io/revision"
    assert sorted(each["metadata"]["annotations"][revision] for each in sets) == ["1", "2"]
    assert (await cluster.get(kinds.DEPLOYMENTS, "web"))["metadata"]["annotations"][revision] == "2"
    back = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": None}}}}}
    await cluster.patch(kinds.DEPLOYMENTS, "web", back)
    await available(cluster, 3)
    sets = await cluster.list(kinds.REPLICA_SETS)
    assert sorted(each["metadata"]["annotations"][revision] for each in sets) == ["2", "3"]


async def test_recreate_has_no_two_versions_at_once(cluster: RunningCluster) -> None:
    await cluster.create(kinds.DEPLOYMENTS, deployment(2, strategy={"type": "Recreate"}))
    await available(cluster, 2)
    seen: list[set[str]] = []
    hash_label = "pod-template-hash"
    await cluster.patch(kinds.DEPLOYMENTS, "web", {"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}})

    def new_only(found: list[Json]) -> bool:
        running = [p for p in found if p["status"].get("phase") in ("Running", "Pending")]
        seen.append({p["metadata"]["labels"][hash_label] for p in running})
        return len(active(found)) == 2 and all(p["metadata"]["labels"].get("v") == "2" for p in found)

    await cluster.until_pods("app=web", new_only)
    assert all(len(hashes) <= 1 for hashes in seen)


async def test_a_failed_pod_of_a_replica_set_is_replaced(cluster: RunningCluster) -> None:
    await cluster.create(kinds.DEPLOYMENTS, deployment(1))
    await available(cluster, 1)
    (first,) = await cluster.list(kinds.PODS, "app=web")
    patch = {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}
    await cluster.client.patch(kinds.PODS, first["metadata"]["name"], patch, namespace="default", subresource="status")
    found = await cluster.until_pods("app=web", lambda found: len(found) == 2)
    assert len({p["metadata"]["uid"] for p in found}) == 2


async def test_pods_are_adopted_and_let_go_by_their_labels(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("orphan", "sleep", "1000", labels=APP))
    await cluster.create(
        kinds.REPLICA_SETS,
        {
            "metadata": {"name": "rs"},
            "spec": {"replicas": 2, "selector": {"matchLabels": APP}, "template": template(APP, "sleep", "1000")},
        },
    )
    found = await cluster.until_pods("app=web", lambda found: len(found) == 2)
    assert "orphan" in {p["metadata"]["name"] for p in found}
    await cluster.patch(kinds.PODS, "orphan", {"metadata": {"labels": {"app": "other"}}})
    await cluster.until_pods("app=web", lambda found: len(found) == 2)
    await cluster.until(kinds.PODS, "orphan", lambda p: not p["metadata"].get("ownerReferences"))


async def test_a_refused_pod_is_told_on_the_replica_set(cluster: RunningCluster) -> None:
    body = deployment(1)
    body["spec"]["template"]["spec"]["serviceAccountName"] = "nobody"
    await cluster.create(kinds.DEPLOYMENTS, body)

    async def failures() -> list[Json]:
        sets = await cluster.list(kinds.REPLICA_SETS)
        return [c for each in sets for c in each["status"].get("conditions", []) if c["type"] == "ReplicaFailure"]

    (condition,) = await cluster.until_true(failures, lambda found: len(found) == 1)
    assert "nobody" in condition["message"]
    await cluster.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "nobody"}})
    await available(cluster, 1)


async def test_deleting_a_deployment_takes_its_sets_and_pods_along(cluster: RunningCluster) -> None:
    await cluster.create(kinds.DEPLOYMENTS, deployment(2))
    await available(cluster, 2)
    await cluster.delete(kinds.DEPLOYMENTS, "web", propagation="Background")
    await cluster.until_pods("app=web", lambda found: not found)
    assert await cluster.list(kinds.REPLICA_SETS) == []


async def test_foreground_waits_for_the_dependents_and_orphan_leaves_them(cluster: RunningCluster) -> None:
    await cluster.create(kinds.DEPLOYMENTS, deployment(1, "sh", "-c", "trap '' TERM; sleep 1000"))
    await available(cluster, 1)
    await cluster.delete(kinds.DEPLOYMENTS, "web", propagation="Foreground")
    held = await cluster.get(kinds.DEPLOYMENTS, "web")
    assert "foregroundDeletion" in held["metadata"]["finalizers"]
    await cluster.until_gone(kinds.DEPLOYMENTS, "web")
    assert await cluster.list(kinds.PODS, "app=web") == []
    await cluster.create(kinds.DEPLOYMENTS, deployment(1))
    await available(cluster, 1)
    await cluster.delete(kinds.DEPLOYMENTS, "web", propagation="Orphan")
    await cluster.until_gone(kinds.DEPLOYMENTS, "web")
    (left,) = await cluster.list(kinds.REPLICA_SETS)
    assert not left["metadata"].get("ownerReferences")
    assert len(active(await cluster.list(kinds.PODS, "app=web"))) == 1


def stateful(replicas: int, **spec: Any) -> Json:
    return {
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template({"app": "db"}, "sleep", "1000"),
            **spec,
        },
    }


def names(found: list[Json]) -> list[str]:
    return sorted(p["metadata"]["name"] for p in found)


async def test_a_stateful_set_counts_up_and_down_in_order(cluster: RunningCluster) -> None:
    await cluster.create(kinds.STATEFUL_SETS, stateful(3))
    found = await cluster.until_pods("app=db", lambda found: len(active(found)) == 3)
    assert names(found) == ["db-0", "db-1", "db-2"]
    started = [p["status"]["startTime"] for p in sorted(found, key=lambda p: p["metadata"]["name"])]
    assert started == sorted(started)
    assert found[0]["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "0"
    await cluster.patch(kinds.STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
    assert names(await cluster.until_pods("app=db", lambda found: len(found) == 1)) == ["db-0"]


async def test_a_stateful_pod_comes_back_under_its_name_with_a_new_uid(cluster: RunningCluster) -> None:
    await cluster.create(kinds.STATEFUL_SETS, stateful(1))
    before = await cluster.until_phase("db-0", "Running")
    await cluster.delete(kinds.PODS, "db-0")
    await cluster.until(
        kinds.PODS,
        "db-0",
        lambda p: p["metadata"]["uid"] != before["metadata"]["uid"] and p["status"].get("phase") == "Running",
    )


async def test_a_stateful_set_is_updated_from_the_end_and_stops_at_the_partition(cluster: RunningCluster) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    await cluster.create(kinds.STATEFUL_SETS, stateful(2, updateStrategy=rolling))
    await cluster.until_pods("app=db", lambda found: len(active(found)) == 2)
    await cluster.until(kinds.STATEFUL_SETS, "db", lambda s: s["status"].get("readyReplicas") == 2)
    await cluster.patch(kinds.STATEFUL_SETS, "db", {"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}})

    def updated(found: list[Json]) -> bool:
        versions = {p["metadata"]["name"]: p["metadata"]["labels"].get("v") for p in active(found)}
        return versions == {"db-0": None, "db-1": "2"}

    await cluster.until_pods("app=db", updated)
    patch = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}
    await cluster.patch(kinds.STATEFUL_SETS, "db", patch)
    await cluster.until_pods(
        "app=db", lambda found: [p["metadata"]["labels"].get("v") for p in active(found)] == ["2", "2"]
    )


async def test_volume_claims_of_a_stateful_set_stay(cluster: RunningCluster) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    body = stateful(1, volumeClaimTemplates=[claim])
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["sh", "-c", "cat /data/x; echo kept > /data/x; sleep 1000"]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    await cluster.create(kinds.STATEFUL_SETS, body)
    first = await cluster.until_phase("db-0", "Running")
    assert await cluster.get(kinds.PERSISTENT_VOLUME_CLAIMS, "data-db-0")
    await cluster.delete(kinds.PODS, "db-0")
    await cluster.until(
        kinds.PODS,
        "db-0",
        lambda p: p["metadata"]["uid"] != first["metadata"]["uid"] and p["status"].get("phase") == "Running",
    )
    await cluster.until_log("db-0", "kept")


def daemon(**spec: Any) -> Json:
    return {
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": template({"app": "agent"}, "sleep", "1000", **spec),
        },
    }


async def test_a_daemon_runs_on_every_node_that_its_rules_allow(two_nodes: RunningCluster) -> None:
    cluster = two_nodes
    await cluster.create(kinds.DAEMON_SETS, daemon(nodeSelector={"role": "gpu"}))
    await cluster.until(
        kinds.DAEMON_SETS,
        "agent",
        lambda d: d["status"].get("observedGeneration") == 1 and d["status"].get("desiredNumberScheduled") == 0,
    )
    await cluster.patch(kinds.NODES, "node-2", {"metadata": {"labels": {"role": "gpu"}}})
    (there,) = await cluster.until_pods("app=agent", lambda found: len(active(found)) == 1)
    assert there["spec"]["nodeName"] == "node-2"
    ready = await cluster.until(kinds.DAEMON_SETS, "agent", lambda d: d["status"].get("numberReady") == 1)
    assert ready["status"]["desiredNumberScheduled"] == 1
    await cluster.patch(kinds.NODES, "node-2", {"metadata": {"labels": {"role": None}}})
    await cluster.until_pods("app=agent", lambda found: not found)


async def test_a_daemon_runs_on_a_cordoned_node_and_not_on_a_tainted_one(two_nodes: RunningCluster) -> None:
    cluster = two_nodes
    await cluster.patch(kinds.NODES, "node-1", {"spec": {"unschedulable": True}})
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    await cluster.patch(kinds.NODES, "node-2", {"spec": {"taints": [taint]}})
    await cluster.create(kinds.DAEMON_SETS, daemon())
    (there,) = await cluster.until_pods("app=agent", lambda found: len(active(found)) == 1)
    assert there["spec"]["nodeName"] == "node-1"
    tolerant = {"spec": {"template": {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}}}
    await cluster.patch(kinds.DAEMON_SETS, "agent", tolerant)
    found = await cluster.until_pods(
        "app=agent", lambda found: len(active(found)) == 2 and all(p["spec"].get("tolerations") for p in found)
    )
    assert {p["spec"]["nodeName"] for p in found} == {"node-1", "node-2"}


async def test_a_running_daemon_stays_under_a_taint_against_scheduling_only(cluster: RunningCluster) -> None:
    await cluster.create(kinds.DAEMON_SETS, daemon())
    (first,) = await cluster.until_pods("app=agent", lambda found: len(active(found)) == 1)
    await cluster.patch(kinds.NODES, "node-1", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})
    await cluster.patch(kinds.DAEMON_SETS, "agent", {"metadata": {"labels": {"touched": "yes"}}})
    await cluster.until(kinds.DAEMON_SETS, "agent", lambda d: d["status"].get("numberReady") == 1)
    assert (await cluster.get(kinds.PODS, first["metadata"]["name"]))["metadata"]["uid"] == first["metadata"]["uid"]
    await cluster.patch(kinds.NODES, "node-1", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})
    await cluster.until_pods("app=agent", lambda found: not found)


async def test_a_killed_daemon_pod_comes_back(cluster: RunningCluster) -> None:
    await cluster.create(kinds.DAEMON_SETS, daemon())
    (first,) = await cluster.until_pods("app=agent", lambda found: len(active(found)) == 1)
    await cluster.delete(kinds.PODS, first["metadata"]["name"])
    await cluster.until_pods(
        "app=agent",
        lambda found: len(active(found)) == 1 and active(found)[0]["metadata"]["uid"] != first["metadata"]["uid"],
    )


async def test_a_namespace_takes_everything_in_it_along(cluster: RunningCluster) -> None:
    await cluster.client.create(kinds.NAMESPACES, {"metadata": {"name": "team"}})
    cluster.namespace = "team"
    await cluster.until(kinds.SERVICE_ACCOUNTS, "default", lambda _: True)
    await cluster.create(kinds.DEPLOYMENTS, deployment(2))
    await available(cluster, 2)
    held = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    await cluster.create(kinds.CONFIG_MAPS, held)
    await cluster.client.delete(kinds.NAMESPACES, "team")
    await cluster.until_pods("app=web", lambda found: not found)
    ending = await cluster.client.get(kinds.NAMESPACES, "team")
    assert ending["status"]["phase"] == "Terminating"
    with pytest.raises(errors.Forbidden):
        await cluster.create(kinds.CONFIG_MAPS, {"metadata": {"name": "new"}})
    await cluster.patch(kinds.CONFIG_MAPS, "held", {"metadata": {"finalizers": None}})
    await cluster.until_gone(kinds.NAMESPACES, "team")
