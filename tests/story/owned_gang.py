"""A gang of an owner in a whole cluster: with the shipped roles, and garbage collection."""

from __future__ import annotations

from typing import Any

from apportion.apis import names
from tests.builders import groups
from tests.environments.api import Api, RefusedError
from tests.environments.waiting import until

Json = dict[str, Any]
GROUP, KIND = "leaderworkerset.x-k8s.io", "LeaderWorkerSet"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/leaderworkersets.{GROUP}"
# Ends at SIGTERM, so that nobody waits for grace periods.
SCRIPT = "trap 'exit 0' TERM; while true; do sleep 0.2; done"


def walk(api: Api, namespace: str) -> None:
    """Q11, Q12: the PodGroup is made, has a status, and goes with its owner."""
    definition = groups.definition(GROUP, KIND)
    api.create(DEFINITIONS, {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **definition})
    try:
        _walk(api, namespace)
    finally:
        api.delete(DEFINITION)
        until(lambda: not api.exists(DEFINITION), "the kind is gone")


def _walk(api: Api, namespace: str) -> None:
    owners = f"/apis/{GROUP}/v1/namespaces/{namespace}/leaderworkersets"
    until(lambda: _is_served(api, owners), "the kind is served")
    body = groups.owner(f"{GROUP}/v1", KIND, "train", spec={"leaderWorkerTemplate": {"size": 2}})
    body["metadata"]["namespace"] = namespace
    owner = {**body, **api.create(owners, body)}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(2):
        api.create(pods, groups.owned(_pod(f"train-{number}"), owner))
    name = f"pg-train-{owner['metadata']['uid']}-0"
    path = f"/apis/scheduling.run.ai/v2alpha2/namespaces/{namespace}/podgroups/{name}"
    until(lambda: api.exists(path), "the PodGroup is made", within=60)
    until(lambda: _status(api, path) == ("Running", 2), "both pods run", within=60)
    assert api.get(path)["spec"]["minMember"] == 2
    assert {pod["metadata"]["annotations"][names.POD_GROUP] for pod in api.items(pods)} == {name}
    api.delete(f"{pods}/train-1")
    until(lambda: _is_below_minimum(api, path), "the PodGroup says that its minimum does not run", within=60)
    api.delete(f"{owners}/train")
    until(lambda: not api.exists(path) and not api.items(pods), "PodGroup and pods go with their owner", within=90)


def _pod(name: str) -> Json:
    container = {"name": "main", "image": "busybox:1.36", "command": ["sh", "-c", SCRIPT]}
    labels = {"leaderworkerset.sigs.k8s.io/group-index": "0"}
    spec = {"schedulerName": names.DAS_SCHEDULER, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def _is_served(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except RefusedError:
        return False
    return True


def _status(api: Api, path: str) -> tuple[str, int]:
    status = api.get(path).get("status", {})
    return status.get("phase", ""), status.get("running", 0)


def _is_below_minimum(api: Api, path: str) -> bool:
    conditions = api.get(path)["status"].get("conditions", ())
    return any((each["type"], each["status"]) == ("BelowMinimum", "True") for each in conditions)
