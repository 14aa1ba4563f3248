"""Admission that every cluster has: namespaces, accounts, priorities, runtime classes, tolerations."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.pocketkube.api.content.serving import Server, serving

Obj = dict[str, Any]

PODS = "/api/v1/namespaces/default/pods"


def pod(**spec: Any) -> Obj:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


async def test_nothing_is_made_in_a_namespace_that_is_not_there() -> None:
    async with serving() as server:
        code, answer = await server.send("POST", "/api/v1/namespaces/none/pods", pod())
    assert (code, answer["message"]) == (404, 'namespaces "none" not found')


async def test_nothing_is_made_in_a_namespace_that_is_going() -> None:
    async with serving() as server:
        await server.create("/api/v1/namespaces", {"metadata": {"name": "going", "finalizers": ["a/b"]}})
        await server.send("DELETE", "/api/v1/namespaces/going")
        code, answer = await server.send("POST", "/api/v1/namespaces/going/configmaps", {"metadata": {"name": "m"}})
    assert (code, answer["reason"]) == (403, "Forbidden")
    assert answer["details"]["causes"][0]["reason"] == "NamespaceTerminating"


async def test_some_namespaces_stay() -> None:
    async with serving() as server:
        code, answer = await server.send("DELETE", "/api/v1/namespaces/kube-system")
    assert code == 403
    assert answer["message"] == 'namespaces "kube-system" is forbidden: this namespace may not be deleted'


async def test_a_pod_gets_the_token_of_its_account_in_every_container() -> None:
    async with serving() as server:
        made = await server.create(PODS, pod(initContainers=[{"name": "i", "image": "i"}]))
    spec = made["spec"]
    volume = spec["volumes"][0]
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    assert volume["name"].startswith("kube-api-access-")
    assert volume["projected"]["sources"][0] == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    mount = {"name": volume["name"], "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["volumeMounts"] == [mount]


async def test_an_account_can_turn_off_the_mounting_of_its_token() -> None:
    async with serving() as server:
        home = "/api/v1/namespaces/default/serviceaccounts"
        secret = {"imagePullSecrets": [{"name": "registry"}], "automountServiceAccountToken": False}
        await server.create(home, {"metadata": {"name": "quiet"}, **secret})
        made = await server.create(PODS, pod(serviceAccountName="quiet"))
    assert "volumes" not in made["spec"]
    assert made["spec"]["imagePullSecrets"] == [{"name": "registry"}]


async def test_a_pod_waits_a_moment_for_the_account_of_a_new_namespace() -> None:
    async with serving() as server:
        await server.create("/api/v1/namespaces", {"metadata": {"name": "fresh"}})
        waiting = asyncio.create_task(server.send("POST", "/api/v1/namespaces/fresh/pods", pod()))
        await asyncio.sleep(0.05)
        await server.create("/api/v1/namespaces/fresh/serviceaccounts", {"metadata": {"name": "default"}})
        code, _ = await waiting
    assert code == 201


async def test_priorities_come_from_classes() -> None:
    async with serving() as server:
        await _priority(server, "high", 1000)
        await _priority(server, "usual", 10, globalDefault=True)
        high = await server.create(f"{PODS}?dryRun=All", pod(priorityClassName="high"))
        usual = await server.create(f"{PODS}?dryRun=All", pod())
    assert (high["spec"]["priority"], high["spec"]["preemptionPolicy"]) == (1000, "PreemptLowerPriority")
    assert (usual["spec"]["priority"], usual["spec"]["priorityClassName"]) == (10, "usual")


async def test_only_one_priority_can_be_the_default() -> None:
    async with serving() as server:
        await _priority(server, "usual", 10, globalDefault=True)
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        body = {"metadata": {"name": "other"}, "value": 1, "globalDefault": True}
        message = await server.refused(path, body)
    assert "PriorityClass usual is already marked as default. Only one default can exist" in message


async def test_runtime_classes_bring_overhead_and_places() -> None:
    async with serving() as server:
        scheduling = {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
        body = {
            "metadata": {"name": "kata"},
            "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": scheduling,
        }
        await server.create("/apis/node.k8s.io/v1/runtimeclasses", body)
        made = await server.create(PODS, pod(runtimeClassName="kata", nodeSelector={"a": "b"}))
        clash = pod(runtimeClassName="kata", nodeSelector={"kata": "no"})
        assert "conflict: runtimeClass.scheduling.nodeSelector[kata]" in await server.refused(PODS, clash)
    assert made["spec"]["overhead"] == {"cpu": "250m"}
    assert made["spec"]["nodeSelector"] == {"a": "b", "kata": "yes"}
    assert {"key": "kata", "operator": "Exists"} in made["spec"]["tolerations"]


async def test_pods_tolerate_a_node_that_is_not_ready_for_five_minutes() -> None:
    async with serving() as server:
        usual = await server.create(f"{PODS}?dryRun=All", pod())
        all_keys = await server.create(f"{PODS}?dryRun=All", pod(tolerations=[{"operator": "Exists"}]))
    keys = {each["key"]: each["tolerationSeconds"] for each in usual["spec"]["tolerations"]}
    assert keys == {"node.kubernetes.io/not-ready": 300, "node.kubernetes.io/unreachable": 300}
    assert all_keys["spec"]["tolerations"] == [{"operator": "Exists"}]


async def _priority(server: Server, name: str, value: int, **fields: Any) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await server.create(path, {"metadata": {"name": name}, "value": value, **fields})


def asking(requests: Obj | None = None, limits: Obj | None = None) -> Obj:
    resources = {name: part for name, part in (("requests", requests), ("limits", limits)) if part}
    return pod(containers=[{"name": "c", "image": "i", "resources": resources}])


LIMITS: Obj = {
    "limits": [
        {
            "type": "Container",
            "max": {"cpu": "2"},
            "min": {"cpu": "100m"},
            "default": {"memory": "1Gi"},
            "maxLimitRequestRatio": {"cpu": "4"},
        },
        {"type": "Pod", "max": {"memory": "4Gi"}},
    ]
}
TOO_LITTLE = "minimum cpu usage per Container is 100m, but request is 50m"
TOO_WIDE = "cpu max limit to request ratio per Container is 4, but provided ratio is 40.000000"
TOO_MUCH = (
    "exceeded quota: q, requested: limits.memory=2Gi,requests.nvidia.com/gpu=2, "
    "used: limits.memory=0,requests.nvidia.com/gpu=0, limited: limits.memory=1Gi,requests.nvidia.com/gpu=1"
)


async def test_limit_ranges_fill_in_and_bound() -> None:
    async with serving() as server:
        await server.create("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "l"}, "spec": LIMITS})
        filled = await server.create(f"{PODS}?dryRun=All", pod())
        resources = filled["spec"]["containers"][0]["resources"]
        assert resources == {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}
        note = "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
        assert filled["metadata"]["annotations"] == {"kubernetes.io/limit-ranger": note}
        for body, why in (
            (asking(limits={"cpu": "4"}), "maximum cpu usage per Container is 2, but limit is 4"),
            (asking({"cpu": "50m"}), f"[{TOO_LITTLE}, {TOO_WIDE}]"),
            (asking(limits={"cpu": "1", "memory": "8Gi"}), "maximum memory usage per Pod is 4Gi, but limit is 8Gi"),
        ):
            assert await server.refused(PODS, body) == f'pods "p" is forbidden: {why}'


async def test_quotas_count_what_is_there() -> None:
    hard = {"pods": "1", "requests.cpu": "1", "limits.memory": "1Gi", "requests.nvidia.com/gpu": "1"}
    async with serving() as server:
        spec = {"hard": {**hard, "count/deployments.apps": "0", "configmaps": "1"}}
        await server.create("/api/v1/namespaces/default/resourcequotas", {"metadata": {"name": "q"}, "spec": spec})
        good = asking({"cpu": "1"}, {"memory": "1Gi"})
        for body, why in (
            (pod(), "failed quota: q: must specify limits.memory for: c; requests.cpu for: c"),
            (
                asking({"cpu": "2"}, {"memory": "1Gi"}),
                "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1",
            ),
            (asking({"cpu": "1"}, {"memory": "2Gi", "nvidia.com/gpu": "2"}), TOO_MUCH),
        ):
            assert await server.refused(PODS, body) == f'pods "p" is forbidden: {why}'
        await server.create(PODS, good)
        second = {**good, "metadata": {"name": "other"}}
        assert await server.refused(PODS, second) == (
            'pods "other" is forbidden: exceeded quota: q, requested: limits.memory=1Gi,pods=1,requests.cpu=1, '
            "used: limits.memory=1Gi,pods=1,requests.cpu=1, limited: limits.memory=1Gi,pods=1,requests.cpu=1"
        )
        await server.send("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
        await server.create(PODS, second)
        await server.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}})
        message = await server.refused("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "b"}})
        assert message.endswith("requested: configmaps=1, used: configmaps=1, limited: configmaps=1")
