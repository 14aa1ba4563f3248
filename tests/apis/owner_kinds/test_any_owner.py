"""Q11: whatever an owner contains, its pods get a valid group, or an error that names the field."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.apis.owner_kinds import grouping, table
from apportion.apis.owner_kinds.rows import OwnerKindError
from tests.apis.owner_kinds.owners import member

FIELDS = st.sampled_from(
    [
        "replicas", "minReplicas", "numOfHosts", "name", "groupName", "suspend", "template", "spec", "parallelism",
        "completions", "dependsOn", "Master", "Worker", "Launcher", "size", "minAvailable", "schedulingPolicy",
    ]
)  # fmt: skip
SPECS = st.sampled_from(
    [
        "pytorchReplicaSpecs", "mpiReplicaSpecs", "tfReplicaSpecs", "xgbReplicaSpecs", "replicatedJobs", "runPolicy",
        "headGroupSpec", "workerGroupSpecs", "leaderWorkerTemplate", "startupPolicy", "elasticPolicy",
        "launcherCreationPolicy", "enableInTreeAutoscaling", "batchSchedulerOptions",
    ]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-2, 4) | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4))
KINDS = st.sampled_from([(group, kind) for group, kind, _ in table.shipped().kinds()])


@given(KINDS, VALUES | st.dictionaries(SPECS, VALUES, max_size=5), st.dictionaries(st.text(max_size=3), LEAVES))
def test_q11_any_owner_gives_a_valid_group_or_an_owner_kind_error(
    kind: tuple[str, str], spec: Any, labels: dict[str, Any]
) -> None:
    owner = {"apiVersion": f"{kind[0]}/v1", "kind": kind[1], "metadata": {"labels": labels}, "spec": spec}
    try:
        found = member(owner, **{"jobset.sigs.k8s.io/replicatedjob-name": "a"})
    except OwnerKindError:
        return
    assert found.minimum >= 1
    assert all(
        minimum >= 1 and re.fullmatch("[a-z0-9][a-z0-9-]{0,62}", name) for name, minimum in found.subgroups.items()
    )
    assert not found.subgroups or sum(found.subgroups.values()) == found.minimum


@pytest.mark.parametrize(
    ("text", "name"),
    [("Worker", "worker"), ("small_Group.1", "small-group-1"), ("-a-", "a"), ("", "unnamed"), ("é", "unnamed")],
)
def test_q11_subgroups_have_names_that_a_pod_group_allows(text: str, name: str) -> None:
    assert grouping.subgroup_name(text) == name
