"""Quotas: what they refuse and in which words, what their status says, and who gives back what was taken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.raw_requests import MERGE_PATCH, RawRequests, until
from tests.environments.cluster import Cluster

GPU = "requests.nvidia.com/gpu"
COMPUTE = {"requests.cpu": "1", "limits.memory": "1Gi", "pods": "2", "count/pods": "3", GPU: "2"}
GOLD = "gold.storageclass.storage.k8s.io/requests.storage"
JOBS = "count/jobs.batch"
OBJECTS = {
    "configmaps": "2",
    "secrets": "1",
    "services.nodeports": "1",
    "services.loadbalancers": "0",
    JOBS: "0",
    "persistentvolumeclaims": "1",
    "requests.storage": "5Gi",
    GOLD: "1Gi",
}


class Space:
    """A namespace with a quota in force."""

    def __init__(self, ask: RawRequests, namespace: str) -> None:
        self._ask = ask
        self.path = f"/api/v1/namespaces/{namespace}"
        self.namespace = namespace

    async def limit(self, name: str, hard: dict[str, str], **spec: Any) -> None:
        quota = {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}
        assert (await self._ask("POST", f"{self.path}/resourcequotas", quota)).code == 201
        await self.until_used(name, {})

    async def used(self, name: str) -> dict[str, str]:
        quota = (await self._ask("GET", f"{self.path}/resourcequotas/{name}")).body
        status = quota.get("status") or {}
        return dict(status.get("used") or {}) if status.get("hard") == quota["spec"]["hard"] else {}

    async def until_used(self, name: str, wanted: dict[str, str]) -> None:
        async def holds() -> bool:
            used = await self.used(name)
            return bool(used) and used | wanted == used

        await until(holds, f"quota {name} says {wanted or 'anything'}")

    async def create(self, path: str, body: Any, **query: str) -> str:
        """The refusal, or nothing."""
        answer = await self._ask("POST", path, body, **query)
        assert answer.code in (201, 403), answer.body
        return "" if answer.code == 201 else answer.message

    async def pod(self, name: str, requests: Any = None, limits: Any = None, **query: str) -> str:
        resources = {"requests": requests or {}, "limits": limits or {}}
        spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "b", "resources": resources}]}
        return await self.create(f"{self.path}/pods", {"metadata": {"name": name}, "spec": spec}, **query)


@pytest.fixture
async def space(ask: RawRequests, namespace: str, pods: str) -> Space:
    del pods
    return Space(ask, namespace)


async def test_pods_are_counted_and_refused_with_numbers(ask: RawRequests, space: Space) -> None:
    await space.limit("compute", COMPUTE)
    zero = {"limits.memory": "0", "requests.cpu": "0", "pods": "0", "count/pods": "0", GPU: "0"}
    assert await space.used("compute") == zero
    assert await space.pod("silent") == (
        'pods "silent" is forbidden: failed quota: compute: must specify limits.memory for: c; requests.cpu for: c'
    )
    fits: Any = {"cpu": "300m"}, {"memory": "300Mi", "nvidia.com/gpu": "2"}
    assert await space.pod("first", *fits, dryRun="All") == ""
    assert await space.pod("first", *fits) == ""
    first = {"limits.memory": "300Mi", "requests.cpu": "300m", "pods": "1", "count/pods": "1", GPU: "2"}
    await space.until_used("compute", first)
    assert await space.pod("large", {"cpu": "1"}, {"memory": "1Gi", "nvidia.com/gpu": "1"}) == (
        'pods "large" is forbidden: exceeded quota: compute, '
        f"requested: limits.memory=1Gi,requests.cpu=1,{GPU}=1, "
        f"used: limits.memory=300Mi,requests.cpu=300m,{GPU}=2, limited: limits.memory=1Gi,requests.cpu=1,{GPU}=2"
    )
    small: Any = {"cpu": "100m"}, {"memory": "100Mi"}
    assert await space.pod("second", *small) == ""
    refused = 'pods "third" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=2, limited: pods=2'
    assert await space.pod("third", *small) == refused
    # A pod that has ended gives back everything but its place among the objects.
    await ask("PATCH", f"{space.path}/pods/first/status", {"status": {"phase": "Succeeded"}}, MERGE_PATCH)
    await space.until_used("compute", {"requests.cpu": "100m", "pods": "1", "count/pods": "2", GPU: "0"})
    assert await space.pod("third", *small) == ""
    for name in ("first", "second", "third"):
        await ask("DELETE", f"{space.path}/pods/{name}", gracePeriodSeconds="0")
    await space.until_used("compute", zero)


async def test_a_change_is_charged_with_what_it_adds(ask: RawRequests, space: Space) -> None:
    await space.limit("mixed", {"requests.cpu": "1", "services.nodeports": "1", "services.loadbalancers": "0"})
    assert await space.pod("grows", {"cpu": "400m"}) == ""
    resources = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1200m"}}}]}}
    assert (await ask("PATCH", f"{space.path}/pods/grows/resize", resources, MERGE_PATCH)).message == (
        'pods "grows" is forbidden: exceeded quota: mixed, requested: requests.cpu=800m, used: requests.cpu=400m, '
        "limited: requests.cpu=1"
    )
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    assert await space.create(f"{space.path}/services", service) == ""
    path = f"{space.path}/services/s"
    assert (await ask("PATCH", path, {"spec": {"type": "NodePort"}}, MERGE_PATCH)).code == 200
    await space.until_used("mixed", {"services.nodeports": "1"})
    assert (await ask("PATCH", path, {"spec": {"type": "LoadBalancer"}}, MERGE_PATCH)).message == (
        'services "s" is forbidden: exceeded quota: mixed, requested: services.loadbalancers=1, '
        "used: services.loadbalancers=0, limited: services.loadbalancers=0"
    )


async def test_objects_of_every_kind_are_counted(space: Space) -> None:
    await space.limit("objects", OBJECTS)
    await space.until_used("objects", {"configmaps": "1"})  # the root certificate
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    job = {
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "b"}]}},
    }
    jobs = f"/apis/batch/v1/namespaces/{space.namespace}/jobs"
    told = "is forbidden: exceeded quota: objects, requested:"
    cases: list[tuple[str, Any, str]] = [
        ("configmaps", {}, ""),
        ("configmaps", {}, f'configmaps "x1" {told} configmaps=1, used: configmaps=2, limited: configmaps=2'),
        ("secrets", {}, ""),
        ("secrets", {}, f'secrets "x3" {told} secrets=1, used: secrets=1, limited: secrets=1'),
        (jobs, {"spec": job}, f'jobs.batch "x4" {told} {JOBS}=1, used: {JOBS}=0, limited: {JOBS}=0'),
        (
            "persistentvolumeclaims",
            {"spec": {**claim, "storageClassName": "gold"}},
            f'persistentvolumeclaims "x5" {told} {GOLD}=2Gi, used: {GOLD}=0, limited: {GOLD}=1Gi',
        ),
        ("persistentvolumeclaims", {"spec": {**claim, "storageClassName": "none"}}, ""),
    ]
    for index, (path, body, refusal) in enumerate(cases):
        where = path if path.startswith("/") else f"{space.path}/{path}"
        assert await space.create(where, {"metadata": {"name": f"x{index}"}, **body}) == refusal
    await space.until_used("objects", {"persistentvolumeclaims": "1", "requests.storage": "2Gi", "secrets": "1"})


async def test_scopes_choose_pods(space: Space) -> None:
    await space.limit("careless", {"pods": "0"}, scopes=["BestEffort"])
    assert await space.pod("bare") == (
        'pods "bare" is forbidden: exceeded quota: careless, requested: pods=1, used: pods=0, limited: pods=0'
    )
    assert await space.pod("modest", {"cpu": "1m"}) == ""


@pytest.mark.kubectl
async def test_kubectl_describes_quotas(any_cluster: Cluster, space: Space) -> None:
    await space.limit("compute", {"requests.cpu": "1500m", "pods": "2"})
    await space.pod("one", {"cpu": "250m"})
    await space.until_used("compute", {"pods": "1"})
    described = any_cluster.kubectl("describe", "quota", "compute", "-n", space.namespace).splitlines()
    assert [line.split() for line in described if line] == [
        ["Name:", "compute"],
        ["Namespace:", space.namespace],
        ["Resource", "Used", "Hard"],
        ["--------", "----", "----"],
        ["pods", "1", "2"],
        ["requests.cpu", "250m", "1500m"],
    ]
    whole = any_cluster.kubectl("describe", "namespace", space.namespace)
    assert "Resource Quotas\n  Name:         compute\n" in whole
    table = any_cluster.kubectl("get", "quota", "-n", space.namespace).splitlines()
    assert table[0].split() == ["NAME", "REQUEST", "LIMIT", "AGE"]
    assert "pods: 1/2, requests.cpu: 250m/1500m" in table[1]
