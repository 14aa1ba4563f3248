"""Queues and PodGroups: both API servers accept what people have and refuse the same, in words that name the fix."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from apportion.apis.custom_resources import crds
from tests.contract.raw_requests import MERGE_PATCH, TABLE, RawRequests, until
from tests.environments.audit import SHARED
from tests.environments.cluster import Cluster

JSON = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AMOUNT = "use a number of 0 or more, or -1 for unlimited"
DURATION = "use a duration such as 90s, 10m or 1h30m"


@dataclass(frozen=True)
class Kinds:
    """Our definitions of the two kinds, served under a group of the test's own."""

    ask: RawRequests
    group: str
    namespace: str

    @property
    def queues(self) -> str:
        return f"/apis/{self.group}/v2/queues"

    @property
    def groups(self) -> str:
        return f"/apis/{self.group}/v2alpha2/namespaces/{self.namespace}/podgroups"

    def queue(self, spec: JSON) -> JSON:
        # Queues belong to no namespace; the audit of the test knows its own by this name.
        return {
            "apiVersion": f"{self.group}/v2",
            "kind": "Queue",
            "metadata": {"name": self.namespace},
            "spec": spec,
        }

    def pod_group(self, spec: JSON) -> JSON:
        return {"apiVersion": f"{self.group}/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


@pytest.fixture(scope="module")
def definitions() -> Iterator[dict[Cluster, str]]:
    """The group by cluster: a real server takes 2 s to serve a new kind."""
    groups: dict[Cluster, str] = {}
    yield groups
    for cluster, group in groups.items():
        for plural in ("queues", "podgroups"):
            cluster.api.delete(f"{DEFINITIONS}/{plural}.{group}")


@pytest.fixture
async def served(
    ask: RawRequests, group: str, any_cluster: Cluster, definitions: dict[Cluster, str], namespace: str
) -> Kinds:
    if any_cluster not in definitions:
        definitions[any_cluster] = group
        for body in _definitions(group):
            made = await ask("POST", DEFINITIONS, body)
            assert made.code == 201, made.body
    found = Kinds(ask, definitions[any_cluster], namespace)

    async def there() -> bool:
        return all([(await ask("GET", path)).code == 200 for path in (found.queues, found.groups)])

    await until(there, "the kinds are served")
    return found


def _definitions(group: str) -> Iterator[JSON]:
    for crd in crds.crds():
        if crd["spec"]["names"]["kind"] in ("Queue", "PodGroup"):
            body = copy.deepcopy(crd)
            body["spec"]["group"] = group
            body["spec"]["names"].pop("shortNames", None)  # taken where the manifests are installed
            body["metadata"] = {"name": f"{body['spec']['names']['plural']}.{group}", "labels": {SHARED: "yes"}}
            yield body


def gpu(**resource: object) -> JSON:
    return {"resources": {"gpu": resource}}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        gpu(quota=-1, limit=-1, overQuotaWeight=1),
        gpu(quota=0.25, limit=1e3, overQuotaWeight=0),
        gpu(quota=0, limit=0, overQuotaWeight=0.1),
        {"displayName": "Team A", "parentQueue": "root", "priority": 200, "resources": {"memory": {"quota": 64000}}},
        {"preemptMinRuntime": "1h30m", "reclaimMinRuntime": "0"},
        {"preemptMinRuntime": "1.5s"},
    ],
)
async def test_q01_queues_that_people_have_are_stored_as_they_are(served: Kinds, spec: JSON) -> None:
    made = await served.ask("POST", served.queues, served.queue(spec), dryRun="All", fieldValidation="Strict")
    assert made.code == 201, made.body
    assert made.body["spec"] == {"priority": 100} | spec


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (gpu(quota=-2), "spec.resources.gpu.quota", AMOUNT),
        (gpu(quota=-0.5), "spec.resources.gpu.quota", AMOUNT),
        (gpu(limit=-1.5), "spec.resources.gpu.limit", AMOUNT),
        ({"resources": {"cpu": {"limit": -3}}}, "spec.resources.cpu.limit", AMOUNT),
        ({"resources": {"memory": {"quota": -3}}}, "spec.resources.memory.quota", AMOUNT),
        (gpu(overQuotaWeight=-1), "spec.resources.gpu.overQuotaWeight", "use a number of 0 or more"),
        (gpu(overQuotaWeight=-0.001), "spec.resources.gpu.overQuotaWeight", "use a number of 0 or more"),
        ({"preemptMinRuntime": "soon"}, "spec.preemptMinRuntime", DURATION),
        ({"preemptMinRuntime": "10"}, "spec.preemptMinRuntime", DURATION),
        ({"reclaimMinRuntime": "-5m"}, "spec.reclaimMinRuntime", DURATION),
        ({"reclaimMinRuntime": ""}, "spec.reclaimMinRuntime", DURATION),
    ],
)
async def test_q12_bad_queues_are_refused_with_the_fix(served: Kinds, spec: JSON, field: str, message: str) -> None:
    answer = await served.ask("POST", served.queues, served.queue(spec), dryRun="All")
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.body
    assert answer.causes == [("FieldValueInvalid", field)]
    assert message in answer.message


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (gpu(quota="4"), "spec.resources.gpu.quota"),
        (gpu(overQuotaWeight="1"), "spec.resources.gpu.overQuotaWeight"),
        ({"priority": "high"}, "spec.priority"),
        ({"priority": 1.5}, "spec.priority"),
        ({"preemptMinRuntime": 60}, "spec.preemptMinRuntime"),
    ],
)
async def test_q12_values_of_another_type_are_refused(served: Kinds, spec: JSON, field: str) -> None:
    answer = await served.ask("POST", served.queues, served.queue(spec), dryRun="All")
    assert answer.code == 422, answer.body
    assert ("FieldValueTypeInvalid", field) in answer.causes


async def test_q12_a_queue_is_not_its_own_parent(served: Kinds) -> None:
    answer = await served.ask("POST", served.queues, served.queue({"parentQueue": served.namespace}), dryRun="All")
    assert (answer.code, answer.causes) == (422, [("FieldValueInvalid", "spec.parentQueue")])
    assert "a queue cannot be its own parent: name another queue" in answer.message


async def test_q01_a_misspelt_field_of_a_queue_is_refused_by_kubectl(served: Kinds) -> None:
    body = served.queue(gpu(overQuotaWeigth=2))
    answer = await served.ask("POST", served.queues, body, dryRun="All", fieldValidation="Strict")
    assert (answer.code, 'unknown field "spec.resources.gpu.overQuotaWeigth"' in answer.message) == (400, True)


async def test_q12_queues_show_share_and_use(served: Kinds) -> None:
    path = f"{served.queues}/{served.namespace}"
    await served.ask("POST", served.queues, served.queue(gpu(quota=2.5) | {"parentQueue": "root"}))
    status = {
        "allocated": {"nvidia.com/gpu": "1500m", "cpu": "4"},
        "allocatedNonPreemptible": {"nvidia.com/gpu": "1"},
        "requested": {"nvidia.com/gpu": "3"},
        "fairShare": {"nvidia.com/gpu": "2500m"},
        "childQueues": ["a", "b"],
        "conditions": [{"type": "OverQuota", "status": "True", "reason": "r", "message": "m"}],
    }
    patched = await served.ask("PATCH", f"{path}/status", {"status": status}, MERGE_PATCH)
    assert (patched.code, patched.body["status"]) == (200, status), patched.body
    table = (await served.ask("GET", path, accept=TABLE)).body
    shown = dict(zip((each["name"] for each in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))
    del shown["Age"]
    assert shown == {
        "Name": served.namespace,
        "Priority": 100,
        "Parent": "root",
        "GPU-Quota": 2.5,
        "GPU-Share": "2500m",
        "GPU-Used": "1500m",
        "GPU-Requested": "3",
        "GPU-Limit": None,
        "GPU-Weight": None,
        "Children": '["a","b"]',
        "DisplayName": None,
    }
    assert (await served.ask("DELETE", path)).code == 200


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"minMember": 4, "queue": "q", "priorityClassName": "train", "preemptibility": "non-preemptible"},
        {"preemptibility": ""},
        {
            "minMember": 3,
            "parallelism": 3,
            "completions": 3,
            "backoffLimit": 1,
            "markUnschedulable": True,
            "schedulingBackoff": -1,
            "topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack", "preferredTopologyLevel": "node"},
            "subGroups": [
                {"name": "workers", "minMember": 2, "parent": "all", "topologyConstraint": {"topology": "t"}},
                {"name": "all"},
                {"name": "leader", "minMember": 1, "parent": "all"},
            ],
        },
        {"minMember": 1, "fieldOfALaterVersion": {"a": 1}},
    ],
)
async def test_q07_groups_that_people_have_are_stored_as_they_are(served: Kinds, spec: JSON) -> None:
    made = await served.ask("POST", served.groups, served.pod_group(spec), dryRun="All", fieldValidation="Strict")
    assert made.code == 201, made.body
    assert made.body["spec"] == {"minMember": 1} | spec


PARENT = "parent must be the name of another entry of subGroups"


@pytest.mark.parametrize(
    ("spec", "cause", "message"),
    [
        ({"minMember": 0}, ("FieldValueInvalid", "spec.minMember"), "should be greater than or equal to 1"),
        (
            {"preemptibility": "maybe"},
            ("FieldValueNotSupported", "spec.preemptibility"),
            'supported values: "", "preemptible", "non-preemptible"',
        ),
        (
            {"subGroups": [{"name": "a"}, {"name": "a"}]},
            ("FieldValueDuplicate", "spec.subGroups[1]"),
            'Duplicate value: {"name":"a"}',
        ),
        ({"subGroups": [{"name": "a", "parent": "b"}]}, ("FieldValueInvalid", "spec.subGroups"), PARENT),
        ({"subGroups": [{"name": "a", "parent": "a"}]}, ("FieldValueInvalid", "spec.subGroups"), PARENT),
        (
            {"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
            ("FieldValueInvalid", "spec.subGroups"),
            "subgroups must not be each other's parents",
        ),
        (
            {"subGroups": [{"name": "a", "minMember": 0}]},
            ("FieldValueInvalid", "spec.subGroups[0].minMember"),
            "should be greater than or equal to 1",
        ),
        (
            {"subGroups": [{"name": "A"}]},
            ("FieldValueInvalid", "spec.subGroups[0].name"),
            "should match '^[a-z0-9][a-z0-9-]*$'",
        ),
        ({"subGroups": [{"minMember": 1}]}, ("FieldValueRequired", "spec.subGroups[0].name"), "Required value"),
    ],
)
async def test_q07_bad_groups_are_refused_with_the_fix(
    served: Kinds, spec: JSON, cause: tuple[str, str], message: str
) -> None:
    answer = await served.ask("POST", served.groups, served.pod_group(spec), dryRun="All")
    assert (answer.code, answer.reason) == (422, "Invalid"), answer.body
    assert cause in answer.causes
    assert message in answer.message


async def test_q07_the_largest_group_is_within_the_cost_of_its_rules(served: Kinds) -> None:
    def subgroups(count: int) -> list[JSON]:
        tree = [{"name": f"{index:063}", "minMember": 1, "parent": f"{count - 1:063}"} for index in range(count - 1)]
        return [*tree, {"name": f"{count - 1:063}"}]

    fits = await served.ask("POST", served.groups, served.pod_group({"subGroups": subgroups(128)}), dryRun="All")
    assert fits.code == 201, fits.body
    excess = await served.ask("POST", served.groups, served.pod_group({"subGroups": subgroups(129)}), dryRun="All")
    assert ("FieldValueTooMany", "spec.subGroups") in excess.causes


async def test_q12_groups_show_why_they_wait(served: Kinds) -> None:
    await served.ask("POST", served.groups, served.pod_group({"minMember": 4, "queue": "q"}))
    details = {"queueDetails": {"name": "q", "queueResourceLimits": {"nvidia.com/gpu": "3"}}}
    reason = {"reason": "OverLimit", "message": "limit of q is 3 GPUs", "details": details}
    condition = {"type": "UnschedulableOnNodePool", "nodePool": "default", "status": "True", "transitionID": "2"}
    status = {
        "phase": "Pending",
        "pending": 4,
        "running": 0,
        "resourcesStatus": {"requested": {"nvidia.com/gpu": "4"}},
        "schedulingConditions": [condition | {"reasons": [reason], "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    patched = await served.ask("PATCH", f"{served.groups}/g/status", {"status": status}, MERGE_PATCH)
    assert (patched.code, patched.body["status"]) == (200, status), patched.body
    table = (await served.ask("GET", served.groups, accept=TABLE)).body
    columns = [each["name"] for each in table["columnDefinitions"] if not each["priority"]]
    assert columns == ["Name", "Queue", "MinMember", "Running", "Pending", "Reason", "Age"]
    assert table["rows"][0]["cells"][:6] == ["g", "q", 4, 0, 4, "OverLimit"]
