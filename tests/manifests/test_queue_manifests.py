"""What ships for queues: priority classes, default queues, and roles that follow the table of owner kinds."""

from __future__ import annotations

from typing import Any

from apportion import manifests
from apportion.apis import names, priorities
from apportion.apis.owner_kinds import table

OBJECTS = manifests.load()
READ = ["get", "list", "watch"]


def role(name: str) -> dict[str, Any]:
    return next(entry for entry in OBJECTS if entry["kind"] == "ClusterRole" and entry["metadata"]["name"] == name)


def verbs(name: str, group: str) -> dict[str, set[str]]:
    """Verbs by resource."""
    found: dict[str, set[str]] = {}
    for rule in role(name).get("rules", ()):
        for resource in rule["resources"] if group in rule["apiGroups"] else ():
            found.setdefault(resource, set()).update(rule["verbs"])
    return found


def test_q05_the_priority_classes_are_those_of_the_table_and_none_is_a_default() -> None:
    classes = [entry for entry in OBJECTS if entry["kind"] == "PriorityClass"]
    assert {entry["metadata"]["name"]: entry["value"] for entry in classes} == priorities.PRIORITY_CLASSES
    assert priorities.PRIORITY_CLASSES == {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
    # A global default would change the priority of every pod of the cluster.
    assert not any(entry.get("globalDefault") for entry in classes)


def test_q02_the_default_queues_are_a_part_of_their_own() -> None:
    shipped = manifests.load("default-queues")
    assert [entry["metadata"]["name"] for entry in shipped] == [names.DEFAULT_PARENT_QUEUE, names.DEFAULT_QUEUE]
    # One `kubectl apply -f` of the folder cannot create objects of kinds that it defines.
    assert not any(entry["kind"] == "Queue" for entry in OBJECTS)


def test_q11_the_scheduler_may_read_every_kind_of_the_table_through_the_aggregated_role() -> None:
    assert "rules" not in role("das-scheduler-owners")
    selector = role("das-scheduler-owners")["aggregationRule"]["clusterRoleSelectors"]
    assert selector == [{"matchLabels": {names.AGGREGATE_TO_SCHEDULER_LABEL: "true"}}]
    known = role("das-scheduler-known-owners")
    assert known["metadata"]["labels"] == {names.AGGREGATE_TO_SCHEDULER_LABEL: "true"}
    assert all(rule["verbs"] == READ for rule in known["rules"])
    granted = sorted((rule["apiGroups"][0], each) for rule in known["rules"] for each in rule["resources"])
    assert granted == [(group, resource) for group, _, resource in table.shipped().kinds()]


def test_r01_the_scheduler_writes_the_status_of_queues_and_not_their_spec() -> None:
    assert verbs("das-scheduler", "scheduling.run.ai") == {
        "queues": {"list", "watch"},
        "queues/status": {"patch"},
        "podgroups": {"get", "list", "watch", "create", "patch", "delete"},
        "podgroups/status": {"patch"},
        "bindrequests": {"get", "list", "watch", "create", "delete"},
    }


def test_q01_only_queue_administrators_change_queues() -> None:
    changing = {
        entry["metadata"]["name"]
        for entry in OBJECTS
        if entry["kind"] == "ClusterRole"
        and verbs(entry["metadata"]["name"], "scheduling.run.ai").get("queues", set()) & {"update", "patch", "delete"}
    }
    assert changing == {"apportion-queue-admin"}
    assert verbs("apportion-queue-viewer", "scheduling.run.ai") == {"queues": set(READ)}
    read = ("queues", "podgroups", "bindrequests")
    assert verbs("apportion-viewer", "scheduling.run.ai") == {resource: set(READ) for resource in read}
    assert "queues" not in verbs("apportion-user", "scheduling.run.ai")
    assert "create" in verbs("apportion-user", "scheduling.run.ai")["podgroups"]


def test_x01_q11_viewers_read_the_owners_that_the_scheduler_reads_so_that_commands_find_the_same_queues() -> None:
    for group, _, resource in table.shipped().kinds():
        assert verbs("apportion-viewer", group)[resource] == set(READ)
