"""Names of the groups of owners, and what is kept of an owner."""

from __future__ import annotations

from typing import Any

from apportion.apis.owner_kinds import grouping, table
from tests.apis.owner_kinds.owners import kept

Json = dict[str, Any]
UID = "0a0a0a0a-1b1b-2c2c-3d3d-4e4e4e4e4e4e"


def job(name: str, uid: str = UID) -> Json:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "uid": uid}}


def name_of(owner: Json, **labels: str) -> str:
    return grouping.group_name(grouping.membership([owner], labels, table.shipped()))


def test_q11_a_group_is_named_after_its_owner_and_two_owners_of_one_name_have_two_groups() -> None:
    assert name_of(job("train")) == f"pg-train-{UID}"
    assert name_of(job("train", "other")) == "pg-train-other"


def test_q11_the_name_of_a_group_is_a_valid_name_however_long_that_of_its_owner_is() -> None:
    for length in (200, 211, 212, 213, 214, 253):
        name = name_of(job("a." * (length // 2)))
        assert len(name) <= 253
        assert name.endswith(f"-{UID}")
        assert ".-" not in name


def test_q11_each_replica_of_a_leader_worker_set_has_a_name_of_its_own() -> None:
    owner = {**job("serve"), "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    index = "leaderworkerset.sigs.k8s.io/group-index"
    assert [name_of(owner, **{index: number}) for number in "01"] == [f"pg-serve-{UID}-0", f"pg-serve-{UID}-1"]


def test_q11_of_an_owner_only_the_fields_are_kept_that_its_rows_read() -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
    body = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": "ray",
            "uid": UID,
            "labels": {"kai.scheduler/queue": "team", "other": "label"},
            "annotations": {"large": "x" * 1000},
            "managedFields": [{"manager": "x"}],
        },
        "spec": {
            "headGroupSpec": {"template": template},
            "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "template": template}],
        },
        "status": {"state": "ready"},
    }
    assert kept(body, table.shipped()) == {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray", "uid": UID, "labels": {"kai.scheduler/queue": "team"}},
        "spec": {"headGroupSpec": {}, "workerGroupSpecs": [{"groupName": "small", "replicas": 2}]},
    }
