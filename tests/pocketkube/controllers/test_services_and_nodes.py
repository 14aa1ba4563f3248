"""Endpoints, disruption budgets, node lifecycle, garbage collection and the default scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apportion.apis import kinds
from apportion.cluster import errors
from pocketkube.controllers import node_lifecycle
from pocketkube.node_pools import Pool, Taint
from tests.pocketkube.cluster import RunningCluster, embedded, pod, template

Json = dict[str, Any]
APP = {"app": "web"}


def service(**spec: Any) -> Json:
    return {
        "metadata": {"name": "web"},
        "spec": {"selector": APP, "ports": [{"port": 80, "targetPort": "http"}], **spec},
    }


async def addresses(cluster: RunningCluster) -> dict[str, bool]:
    slices = await cluster.list(kinds.ENDPOINT_SLICES, "kubernetes.io/service-name=web")
    return {each["addresses"][0]: each["conditions"]["ready"] for s in slices for each in s.get("endpoints") or []}


async def test_ready_pods_stand_behind_a_service_under_their_named_port(cluster: RunningCluster) -> None:
    await cluster.create(kinds.SERVICES, service())
    container = {"ports": [{"name": "http", "containerPort": 8080}]}
    await cluster.create(kinds.PODS, pod("a", "sleep", "1000", labels=APP, container=container))
    await cluster.create(
        kinds.PODS,
        pod("b", "sleep", "1000", labels=APP, container=container, readinessGates=[{"conditionType": "x/y"}]),
    )
    first = await cluster.until_phase("a", "Running")
    second = await cluster.until_phase("b", "Running")
    wanted = {first["status"]["podIP"]: True, second["status"]["podIP"]: False}
    await cluster.until_true(lambda: addresses(cluster), lambda found: found == wanted)
    (only,) = await cluster.list(kinds.ENDPOINT_SLICES, "kubernetes.io/service-name=web")
    assert [each["port"] for each in only["ports"]] == [8080]
    old = await cluster.until(kinds.ENDPOINTS, "web", lambda e: bool((e.get("subsets") or [{}])[0].get("addresses")))
    assert old["subsets"][0]["addresses"][0]["ip"] == first["status"]["podIP"]
    assert old["subsets"][0]["notReadyAddresses"][0]["ip"] == second["status"]["podIP"]
    await cluster.delete(kinds.PODS, "a")
    await cluster.until_true(lambda: addresses(cluster), lambda found: first["status"]["podIP"] not in found)
    await cluster.delete(kinds.SERVICES, "web")
    await cluster.until_gone(kinds.ENDPOINTS, "web")
    await cluster.until_true(lambda: addresses(cluster), lambda found: not found)


async def test_a_budget_tells_how_many_may_go_and_eviction_respects_it(cluster: RunningCluster) -> None:
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": APP}}}
    await cluster.create(kinds.POD_DISRUPTION_BUDGETS, budget)
    for name in ("a", "b"):
        await cluster.create(kinds.PODS, pod(name, "sleep", "1000", labels=APP))
        await cluster.until_phase(name, "Running")
    await cluster.until(kinds.POD_DISRUPTION_BUDGETS, "b", lambda p: p["status"].get("disruptionsAllowed") == 1)
    await cluster.client.evict("default", "a")
    await cluster.until_gone(kinds.PODS, "a")
    await cluster.until(kinds.POD_DISRUPTION_BUDGETS, "b", lambda p: p["status"].get("disruptionsAllowed") == 0)
    with pytest.raises(errors.TooManyRequests):
        await cluster.client.evict("default", "b")


async def test_a_share_of_a_budget_is_of_what_the_owner_wants(cluster: RunningCluster) -> None:
    budget = {"metadata": {"name": "b"}, "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": APP}}}
    await cluster.create(kinds.POD_DISRUPTION_BUDGETS, budget)
    body = {"replicas": 4, "selector": {"matchLabels": APP}, "template": template(APP, "sleep", "1000")}
    await cluster.create(kinds.REPLICA_SETS, {"metadata": {"name": "rs"}, "spec": body})
    found = await cluster.until(kinds.POD_DISRUPTION_BUDGETS, "b", lambda p: p["status"].get("disruptionsAllowed") == 2)
    assert (found["status"]["expectedPods"], found["status"]["desiredHealthy"]) == (4, 2)


async def test_a_cordoned_node_is_tainted_and_takes_nothing(cluster: RunningCluster) -> None:
    await cluster.patch(kinds.NODES, "node-1", {"spec": {"unschedulable": True}})
    await cluster.until(
        kinds.NODES,
        "node-1",
        lambda n: any(t["key"] == node_lifecycle.UNSCHEDULABLE for t in n["spec"].get("taints", [])),
    )
    await cluster.create(kinds.PODS, pod("p", "sleep", "1000"))
    waiting = await cluster.until(kinds.PODS, "p", lambda p: bool(p["status"].get("conditions")))
    assert waiting["status"]["conditions"][0]["reason"] == "Unschedulable"
    await cluster.patch(kinds.NODES, "node-1", {"spec": {"unschedulable": None}})
    await cluster.until_phase("p", "Running")
    node = await cluster.get(kinds.NODES, "node-1")
    assert not node["spec"].get("taints")


async def test_a_no_execute_taint_evicts_pods(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("goes", "sleep", "1000"))
    stays = [{"key": "k", "operator": "Exists"}]
    await cluster.create(kinds.PODS, pod("stays", "sleep", "1000", tolerations=stays))
    for name in ("goes", "stays"):
        await cluster.until_phase(name, "Running")
    await cluster.patch(kinds.NODES, "node-1", {"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})
    await cluster.until_gone(kinds.PODS, "goes")
    assert (await cluster.get(kinds.PODS, "stays"))["status"]["phase"] == "Running"


async def test_a_node_without_heartbeats_is_marked_and_recovers(
    two_nodes: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = two_nodes
    await cluster.create(kinds.PODS, pod("p", "sleep", "1000", nodeName="node-2"))
    await cluster.until_phase("p", "Running")
    monkeypatch.setattr(node_lifecycle, "SILENCE_SECONDS", -1.0)
    lease = {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}
    kubelet = cluster.pocketkube.kubelets["node-2"]
    monkeypatch.setattr(kubelet.node, "observe", lambda _: None)
    await cluster.client.patch(kinds.LEASES, "node-2", lease, namespace="kube-node-lease")
    await cluster.until(
        kinds.NODES,
        "node-2",
        lambda n: (
            any(c["type"] == "Ready" and c["status"] == "Unknown" for c in n["status"]["conditions"])
            and {t["effect"] for t in n["spec"].get("taints", []) if t["key"] == node_lifecycle.UNREACHABLE}
            == {"NoSchedule", "NoExecute"}
        ),
    )
    await cluster.until(
        kinds.PODS,
        "p",
        lambda p: any(c["type"] == "Ready" and c["status"] == "False" for c in p["status"]["conditions"]),
    )
    monkeypatch.undo()
    kubelet.node.observe(await cluster.get(kinds.NODES, "node-2"))
    await cluster.until(kinds.NODES, "node-2", lambda n: not n["spec"].get("taints"))


async def test_pods_of_a_deleted_node_go(two_nodes: RunningCluster) -> None:
    cluster = two_nodes
    await cluster.create(kinds.PODS, pod("p", "sleep", "1000", nodeName="node-2"))
    await cluster.until_phase("p", "Running")
    await cluster.delete(kinds.NODES, "node-2")
    await cluster.until_gone(kinds.PODS, "p")


async def test_s06_an_owner_in_another_namespace_owns_nothing(cluster: RunningCluster) -> None:
    owner = await cluster.create(kinds.CONFIG_MAPS, {"metadata": {"name": "owner"}})
    await cluster.client.create(kinds.NAMESPACES, {"metadata": {"name": "far"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    near = {"metadata": {"name": "near", "ownerReferences": [reference]}}
    await cluster.create(kinds.CONFIG_MAPS, near)
    cluster.namespace = "far"
    await cluster.create(kinds.CONFIG_MAPS, {"metadata": {"name": "stray", "ownerReferences": [reference]}})
    await cluster.until_gone(kinds.CONFIG_MAPS, "stray")
    cluster.namespace = "default"
    assert await cluster.find(kinds.CONFIG_MAPS, "near")
    await cluster.delete(kinds.CONFIG_MAPS, "owner")
    await cluster.until_gone(kinds.CONFIG_MAPS, "near")


async def test_an_object_with_a_living_owner_left_only_loses_the_dead_one(cluster: RunningCluster) -> None:
    made = [await cluster.create(kinds.CONFIG_MAPS, {"metadata": {"name": name}}) for name in ("one", "two")]
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
        for each in made
    ]
    await cluster.create(kinds.CONFIG_MAPS, {"metadata": {"name": "shared", "ownerReferences": references}})
    await cluster.delete(kinds.CONFIG_MAPS, "one")
    await cluster.until(kinds.CONFIG_MAPS, "shared", lambda c: len(c["metadata"]["ownerReferences"]) == 1)


async def test_every_namespace_has_its_account_and_certificate(cluster: RunningCluster) -> None:
    await cluster.client.create(kinds.NAMESPACES, {"metadata": {"name": "new"}})
    cluster.namespace = "new"
    await cluster.until(kinds.SERVICE_ACCOUNTS, "default", lambda _: True)
    await cluster.until(kinds.CONFIG_MAPS, "kube-root-ca.crt", lambda c: "BEGIN CERTIFICATE" in c["data"]["ca.crt"])
    await cluster.delete(kinds.SERVICE_ACCOUNTS, "default")
    await cluster.until(kinds.SERVICE_ACCOUNTS, "default", lambda _: True)


async def test_the_default_scheduler_follows_node_rules_and_says_why_not(tmp_path: Path) -> None:
    pools = [
        Pool(name="big", cpu="8", labels={"disk": "ssd"}),
        Pool(name="small", cpu="2"),
        Pool(name="kept", cpu="8", taints=[Taint(key="gpu", value="yes")]),
    ]
    async with embedded(tmp_path, pools=pools) as cluster:
        for name, spec in {
            "ssd": {"nodeSelector": {"disk": "ssd"}},
            "tolerant": {
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "nodeSelector": {"kubernetes.io/hostname": "kept-1"},
            },
        }.items():
            await cluster.create(kinds.PODS, pod(name, "sleep", "1000", **spec))
        assert (await cluster.until_phase("ssd", "Running"))["spec"]["nodeName"] == "big-1"
        assert (await cluster.until_phase("tolerant", "Running"))["spec"]["nodeName"] == "kept-1"
        big = {"resources": {"requests": {"cpu": "6"}}}
        await cluster.create(kinds.PODS, pod("first", "sleep", "1000", container=big))
        assert (await cluster.until_phase("first", "Running"))["spec"]["nodeName"] == "big-1"
        await cluster.create(kinds.PODS, pod("second", "sleep", "1000", container=big))
        waiting = await cluster.until(kinds.PODS, "second", lambda p: bool(p["status"].get("conditions")))
        assert waiting["status"]["conditions"][0]["message"] == (
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. "
            "no new claims to deallocate, preemption: 0/3 nodes are available: "
            "1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
        )
        await cluster.delete(kinds.PODS, "first")
        assert (await cluster.until_phase("second", "Running"))["spec"]["nodeName"] == "big-1"


async def test_pods_of_one_owner_are_spread_and_gated_pods_wait(two_nodes: RunningCluster) -> None:
    cluster = two_nodes
    body = {"replicas": 4, "selector": {"matchLabels": APP}, "template": template(APP, "sleep", "1000")}
    await cluster.create(kinds.REPLICA_SETS, {"metadata": {"name": "rs"}, "spec": body})
    found = await cluster.until_pods(
        "app=web", lambda found: len(found) == 4 and all(p["status"].get("phase") == "Running" for p in found)
    )
    assert sorted(p["spec"]["nodeName"] for p in found) == ["node-1", "node-1", "node-2", "node-2"]
    await cluster.create(kinds.PODS, pod("gated", "sleep", "1000", schedulingGates=[{"name": "example.com/wait"}]))
    await cluster.create(kinds.PODS, pod("after", "sleep", "1000"))
    await cluster.until_phase("after", "Running")
    assert not (await cluster.get(kinds.PODS, "gated"))["spec"].get("nodeName")
    await cluster.patch(kinds.PODS, "gated", {"spec": {"schedulingGates": None}})
    await cluster.until_phase("gated", "Running")


async def test_other_schedulers_pods_are_left_alone(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PODS, pod("other", "sleep", "1000", schedulerName="das-scheduler"))
    await cluster.create(kinds.PODS, pod("ours", "sleep", "1000"))
    await cluster.until_phase("ours", "Running")
    assert not (await cluster.get(kinds.PODS, "other"))["spec"].get("nodeName")
