"""Deployments that stall, pause, grow in the middle and go back. There are no nodes: tests say which pods are ready."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.contract.raw_requests import MERGE_PATCH, STRATEGIC_PATCH, RawRequests, until
from tests.environments.cluster import Cluster

pytestmark = pytest.mark.kubectl

PREFIX = "deployment.kubernetes.io/"
CHANGE_CAUSE = "kubernetes.io/change-cause"


class Web:
    """One Deployment `web` and its ReplicaSets, by revision."""

    def __init__(self, ask: RawRequests, cluster: Cluster, namespace: str) -> None:
        self._ask, self._cluster, self._namespace = ask, cluster, namespace
        self._apps = f"/apis/apps/v1/namespaces/{namespace}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    async def create(self, replicas: int, **spec: Any) -> None:
        pod = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i:1"}]}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": pod}
        body = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
        answer = await self._ask("POST", f"{self._apps}/deployments", {"metadata": {"name": "web"}, "spec": body})
        assert answer.code == 201

    async def change(self, **spec: Any) -> None:
        answer = await self._ask("PATCH", f"{self._apps}/deployments/web", {"spec": spec}, MERGE_PATCH)
        assert answer.code == 200, answer.body

    def rollout(self, *args: str, check: bool = True) -> str:
        return self._cluster.kubectl("-n", self._namespace, "rollout", *args, check=check)

    def image(self, image: str) -> None:
        self._cluster.kubectl("-n", self._namespace, "set", "image", "deployment/web", f"c={image}")

    async def condition(self, kind: str) -> tuple[str, str, str]:
        status = (await self._ask("GET", f"{self._apps}/deployments/web")).body.get("status") or {}
        found = next((each for each in status.get("conditions") or () if each["type"] == kind), None)
        if found is None:
            return "", "", ""
        return found["status"], found["reason"], re.sub(r'"web-\w+"', '"SET"', found["message"])

    async def until_progress(self, *wanted: str, get_ready: bool = False) -> None:
        async def holds() -> bool:
            if get_ready:
                await self.get_ready()
            return await self.condition("Progressing") == wanted

        await until(holds, f"the rollout is {wanted}")

    async def until_done(self) -> None:
        await self.until_progress(
            "True", "NewReplicaSetAvailable", 'ReplicaSet "SET" has successfully progressed.', get_ready=True
        )

    async def get_ready(self, image: str = "") -> None:
        """Mark the pods ready that the ReplicaSets have made."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        for pod in (await self._ask("GET", self._pods)).body["items"]:
            marked = pod["status"].get("phase") == "Running" or "deletionTimestamp" in pod["metadata"]
            if not marked and image in pod["spec"]["containers"][0]["image"]:
                path = f"{self._pods}/{pod['metadata']['name']}/status"
                await self._ask("PATCH", path, {"status": {"phase": "Running", "conditions": [ready]}}, STRATEGIC_PATCH)

    async def sets(self) -> dict[str, Any]:
        found = (await self._ask("GET", f"{self._apps}/replicasets")).body["items"]
        return {each["metadata"]["annotations"][f"{PREFIX}revision"]: each for each in found}

    async def until_sizes(self, wanted: dict[str, int], *, get_ready: bool = False) -> None:
        async def holds() -> bool:
            if get_ready:
                await self.get_ready()
            sets = await self.sets()
            return {revision: each["spec"]["replicas"] for revision, each in sets.items()} == wanted

        await until(holds, f"the ReplicaSets have the sizes {wanted}")

    async def annotations(self, revision: str) -> dict[str, str]:
        given = (await self.sets())[revision]["metadata"]["annotations"]
        return {name.removeprefix(PREFIX): value for name, value in given.items()}


@pytest.fixture
async def web(ask: RawRequests, any_cluster: Cluster, namespace: str, pods: str) -> Web:
    del pods
    return Web(ask, any_cluster, namespace)


async def test_a_rollout_without_progress_fails_at_its_deadline(web: Web) -> None:
    await web.create(2, progressDeadlineSeconds=2)
    await web.until_progress("False", "ProgressDeadlineExceeded", 'ReplicaSet "SET" has timed out progressing.')
    said = web.rollout("status", "deployment/web", check=False)
    assert said == 'error: deployment "web" exceeded its progress deadline\n'
    unavailable = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    assert await web.condition("Available") == unavailable
    await web.until_done()
    assert web.rollout("status", "deployment/web") == 'deployment "web" successfully rolled out\n'


async def test_a_paused_deployment_is_scaled_but_not_rolled_out(web: Web) -> None:
    await web.create(2)
    await web.until_done()
    assert web.rollout("pause", "deployment/web") == "deployment.apps/web paused\n"
    await web.until_progress("Unknown", "DeploymentPaused", "Deployment is paused")
    web.image("i:2")
    await web.change(replicas=3)
    await web.until_sizes({"1": 3})
    assert await web.annotations("1") == {"desired-replicas": "3", "max-replicas": "4", "revision": "1"}
    refused = web.rollout("restart", "deployment/web", check=False)
    assert "can't restart paused deployment (run rollout resume first)" in refused
    assert web.rollout("resume", "deployment/web") == "deployment.apps/web resumed\n"
    await web.until_sizes({"1": 3, "2": 1})
    await web.until_done()
    await web.until_sizes({"1": 0, "2": 3})


async def test_history_is_kept_undone_and_limited(web: Web) -> None:
    await web.create(1, revisionHistoryLimit=1)
    await web.until_done()
    web.image("i:2")
    await web.until_sizes({"1": 1, "2": 1})
    await web.until_sizes({"1": 0, "2": 1}, get_ready=True)
    assert web.rollout("history", "deployment/web").split("\n")[1:4] == [
        "REVISION  CHANGE-CAUSE",
        "1         <none>",
        "2         <none>",
    ]
    assert web.rollout("undo", "deployment/web") == "deployment.apps/web rolled back\n"
    await web.until_sizes({"2": 1, "3": 1})
    history = await web.annotations("3")
    assert history["revision-history"] == "1"
    await web.until_sizes({"2": 0, "3": 1}, get_ready=True)
    missing = web.rollout("undo", "deployment/web", "--to-revision=9", check=False)
    assert missing == "error: unable to find specified revision 9 in history\n"
    web.image("i:3")
    await web.until_sizes({"2": 0, "3": 1, "4": 1})
    await web.until_sizes({"3": 0, "4": 1}, get_ready=True)


async def test_what_is_scaled_in_the_middle_of_a_rollout_keeps_its_proportions(web: Web) -> None:
    await web.create(10, strategy={"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}})
    await web.until_done()
    web.image("i:2")
    await web.until_sizes({"1": 8, "2": 5})
    await web.change(replicas=15)
    await web.until_sizes({"1": 11, "2": 7})
    assert (await web.annotations("1"))["desired-replicas"] == "15"
    await web.change(replicas=5)
    await web.until_sizes({"1": 3, "2": 5})
