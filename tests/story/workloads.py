"""Workloads for tests without kubectl: objects through the API, and what must be true of them."""

from __future__ import annotations

import re
from typing import Any, Protocol

from tests.builders import pods
from tests.environments.api import Api
from tests.environments.waiting import until

Json = dict[str, Any]


class Stage(Protocol):
    """A cluster with all planes, and a look at what is left on its nodes."""

    @property
    def api(self) -> Api: ...
    def claims(self) -> list[Json]: ...
    def left_on_nodes(self) -> list[str]: ...


class Workloads:
    """Controllers with slices in one namespace."""

    def __init__(self, cluster: Stage, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def create(self, kind: str, name: str, *, replicas: int, profiles: tuple[str, ...] = ("1g.5gb",)) -> None:
        labels = {"app": name}
        body: Json = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod_spec(profiles)},
            },
        }
        if kind == "StatefulSet":
            body["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        self.cluster.api.create(self.path(kind), body)

    def scale(self, kind: str, name: str, replicas: int) -> None:
        self.cluster.api.merge(f"{self.path(kind)}/{name}", {"spec": {"replicas": replicas}})

    def delete(self, kind: str, name: str) -> None:
        self.cluster.api.delete(f"{self.path(kind)}/{name}")

    def delete_pod(self, name: str) -> None:
        self.cluster.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    def path(self, kind: str) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/{kind.lower()}s"

    def pods(self) -> list[Json]:
        return list(self.cluster.api.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"])

    def running(self) -> list[Json]:
        return [
            pod
            for pod in self.pods()
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def wait_running(self, count: int, *, within: float = 90) -> list[Json]:
        until(lambda: len(self.running()) == count, f"{count} pods run", within=within)
        return self.running()

    def log(self, pod: Json) -> str:
        return self.cluster.api.send("GET", f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/log")

    def devices_seen(self, pod: Json) -> list[str]:
        """The devices that the container printed when it started last."""
        until(lambda: "NVIDIA_VISIBLE_DEVICES=" in self.log(pod), f"{pod['metadata']['name']} prints its devices")
        return re.findall(r"NVIDIA_VISIBLE_DEVICES=(\S+)", self.log(pod))[-1].split(",")

    def assert_each_sees_its_own(self, pods: list[Json]) -> None:
        claims = self.cluster.claims()
        for pod in pods:
            own = [
                claim["status"]["migUUID"]
                for claim in claims
                if claim["spec"]["podRef"]["uid"] == pod["metadata"]["uid"]
            ]
            assert own, f"{pod['metadata']['name']} runs without a claim"
            assert sorted(self.devices_seen(pod)) == sorted(own), pod["metadata"]["name"]

    def wait_nothing_left(self) -> None:
        until(lambda: not self.pods(), "the pods are gone", within=60)
        until(lambda: not self.cluster.claims(), "the claims are gone", within=30)
        until(lambda: not self.cluster.left_on_nodes(), "slices and CDI files are gone", within=10)


def assert_no_overlap(claims: list[Json]) -> None:
    """No unit of a GPU is claimed twice by claims that are being made or in use."""
    taken: dict[tuple[str, int], str] = {}
    for claim in claims:
        if claim.get("status", {}).get("state") not in ("processing", "inUse"):
            continue
        place = claim["spec"]["migPlacement"]
        for unit in range(place["start"], place["start"] + place["size"]):
            other = taken.setdefault((claim["spec"]["gpuUUID"], unit), claim["metadata"]["name"])
            assert other == claim["metadata"]["name"], f"{other} and {claim['metadata']['name']} overlap"


def pod_spec(profiles: tuple[str, ...]) -> Json:
    command = ["sh", "-c", "env | grep VISIBLE_DEVICES; sleep 100000"]
    busy = pods.container("busy", mig=dict.fromkeys(profiles, 1), command=command)
    return {"terminationGracePeriodSeconds": 1, "containers": [busy]}
