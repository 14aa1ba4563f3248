"""T04: what the tokens of scheduler and operator change of queues and groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apportion import manifests
from apportion.apis import names
from tests.environments.api import Api
from tests.manifests.installed_tokens import DENIED, HERE, MERGE, InstalledTokens, Json, answer, status

QUEUES = "/apis/scheduling.run.ai/v2/queues"
GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"
OWN = {names.MANAGED_BY_LABEL: names.MANAGED_BY_SCHEDULER}


def queue(name: str) -> Json:
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": {}}


def group(name: str, **metadata: object) -> Json:
    kind = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup"}
    return kind | {"metadata": {"name": name} | metadata, "spec": {"minMember": 2}}


@pytest.fixture
def made(tokens: InstalledTokens) -> Iterator[None]:
    """A queue and a group of a user, and a group of the scheduler."""
    objects = {QUEUES: [queue("team")], GROUPS: [group("theirs"), group("ours", labels=OWN)]}
    for path, bodies in objects.items():
        for body in bodies:
            tokens.api.create(path, body)
    yield
    for path, bodies in objects.items():
        for body in bodies:
            tokens.api.delete(f"{path}/{body['metadata']['name']}")


@pytest.mark.usefixtures("made")
def test_t04_the_scheduler_changes_only_the_status_of_queues(scheduler: Api) -> None:
    everything = {"spec": {"resources": {"gpu": {"quota": -1}}}}
    assert status(scheduler, "PATCH", f"{QUEUES}/team", everything, MERGE) == DENIED
    assert status(scheduler, "POST", QUEUES, queue("evil")) == DENIED
    assert status(scheduler, "DELETE", f"{QUEUES}/team") == DENIED
    body = everything | {"status": {"allocated": {"nvidia.com/gpu": "1"}}, "metadata": {"labels": {"evil": "yes"}}}
    code, text = answer(scheduler, "PATCH", f"{QUEUES}/team/status", body, MERGE)
    assert code == 200, text
    kept = scheduler.get(QUEUES)["items"]
    (found,) = (entry for entry in kept if entry["metadata"]["name"] == "team")
    assert (found["spec"], "labels" in found["metadata"]) == ({"priority": 100}, False)
    assert found["status"] == {"allocated": {"nvidia.com/gpu": "1"}}


@pytest.mark.usefixtures("made")
def test_t04_the_scheduler_changes_only_the_status_of_groups_of_users(scheduler: Api) -> None:
    for body in ({"spec": {"minMember": 1}}, {"metadata": {"labels": OWN}}, {"spec": {"queue": "other"}}):
        assert status(scheduler, "PATCH", f"{GROUPS}/theirs", body, MERGE) == DENIED, body
    assert status(scheduler, "DELETE", f"{GROUPS}/theirs") == DENIED
    code, text = answer(scheduler, "PATCH", f"{GROUPS}/theirs/status", {"status": {"phase": "Pending"}}, MERGE)
    assert code == 200, text


@pytest.mark.usefixtures("made")
def test_t04_the_scheduler_makes_changes_and_deletes_groups_of_its_own(scheduler: Api) -> None:
    for body in (
        group("evil"),
        group("evil", labels={names.MANAGED_BY_LABEL: "helm"}),
        group("evil", labels=OWN, finalizers=["example.com/evil"]),
    ):
        assert status(scheduler, "POST", GROUPS, body) == DENIED, body
    for body in ({"metadata": {"labels": None}}, {"metadata": {"finalizers": ["example.com/evil"]}}):
        assert status(scheduler, "PATCH", f"{GROUPS}/ours", body, MERGE) == DENIED, body
    assert status(scheduler, "PATCH", f"{GROUPS}/ours", {"spec": {"minMember": 3}}, MERGE) == 200
    assert status(scheduler, "DELETE", f"{GROUPS}/ours") == 200
    code, text = answer(scheduler, "POST", GROUPS, group("ours", labels=OWN))
    assert code == 200, text


def test_r01_the_scheduler_reads_what_evictions_and_groups_need(scheduler: Api) -> None:
    for path in (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/scheduling.run.ai/v2/queues",
        "/apis/scheduling.run.ai/v2alpha2/podgroups",
        "/apis/kai.scheduler/v1/configs",
    ):
        assert status(scheduler, "GET", path) == 200, path


def test_t04_with_a_binding_the_scheduler_adds_only_the_name_of_the_group(
    tokens: InstalledTokens, scheduler: Api
) -> None:
    pods = "/api/v1/namespaces/default/pods"
    spec = {"schedulerName": names.DAS_SCHEDULER, "containers": [{"name": "main", "image": "busybox"}]}
    tokens.api.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bound"}, "spec": spec})

    def bind(**metadata: object) -> int:
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"} | metadata}
        return status(scheduler, "POST", f"{pods}/bound/binding", body | {"target": {"kind": "Node", "name": HERE}})

    assert bind(annotations={"gpu-memory": "1"}) == DENIED
    assert bind(annotations={names.POD_GROUP: "g", "evil": "yes"}) == DENIED
    assert bind(labels={"topology.kubernetes.io/zone": "evil"}) == DENIED
    assert bind(annotations={names.POD_GROUP: "g"}) == 200
    assert tokens.api.get(f"{pods}/bound")["metadata"]["annotations"][names.POD_GROUP] == "g"
    tokens.api.delete(f"{pods}/bound?gracePeriodSeconds=0")


def test_t04_the_operator_creates_only_the_default_queues_and_changes_none(tokens: InstalledTokens) -> None:
    operator = tokens.token("das-operator")
    assert status(operator, "POST", QUEUES, queue("evil")) == DENIED
    for body in manifests.load("default-queues"):
        name = body["metadata"]["name"]
        code, text = answer(operator, "POST", QUEUES, body)
        assert code == 200, text
        assert status(operator, "PATCH", f"{QUEUES}/{name}", {"spec": {"priority": 1}}, MERGE) == DENIED
        assert status(operator, "DELETE", f"{QUEUES}/{name}") == DENIED
        tokens.api.delete(f"{QUEUES}/{name}")
