"""The audit after a test: it finds what was left in a cluster that others use, and nothing else."""

from __future__ import annotations

import secrets

from tests.environments import audit
from tests.environments.cluster import Cluster
from tests.environments.waiting import until

ACCOUNT = "system:serviceaccount:das-operator:das-scheduler"
MAPS = "/api/v1/namespaces/default/configmaps"


def test_what_a_test_left_elsewhere_is_named(any_cluster: Cluster) -> None:
    api, name = any_cluster.api, f"left-{secrets.token_hex(4)}"
    before = audit.inventory(api, leave_out="nothing")
    api.create(MAPS, {"metadata": {"name": name}})
    api.create(MAPS, {"metadata": {"name": f"{name}-shared", "labels": {audit.SHARED: "yes"}}})
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    api.create(f"/api/v1/namespaces/{name}/configmaps", {"metadata": {"name": "inside"}})
    try:
        left, after = audit.left_behind(api, before, namespace="nothing", within=0)
        inside = f"/api/v1/namespaces/{name}/configmaps/inside"
        assert set(left) == {f"{MAPS}/{name}", inside, f"/api/v1/namespaces/{name}"}
        assert set(left) <= after

        api.delete(f"/api/v1/namespaces/{name}")
        assert audit.left_behind(api, before, namespace="nothing", within=0)[0] == [f"{MAPS}/{name}"]
    finally:
        for path in (f"{MAPS}/{name}", f"{MAPS}/{name}-shared", f"/api/v1/namespaces/{name}"):
            api.delete(path)
    until(lambda: not api.exists(f"/api/v1/namespaces/{name}"), "the namespace is gone", within=60)


def test_t04_refusals_of_roles_and_policies_are_found_in_both_kinds_of_trails() -> None:
    denied = {"code": 422, "message": "ValidatingAdmissionPolicy 'a' with binding 'a' denied request"}
    events: list[dict[str, dict[str, object]]] = [
        {"responseStatus": {"code": 403}},
        {"responseStatus": denied},
        {"responseStatus": {"code": 422, "message": "spec is invalid"}},
        {"responseStatus": {"code": 403, "message": "namespace x because it is being terminated"}},
        {},
    ]
    assert audit.refused_events(events) == events[:2]
    line = f"2026-01-01T00:00:00 INFO up refused {ACCOUNT}: PATCH '/api/v1/nodes/n': 'no'"
    other = line.replace("das-operator", "default")
    assert audit.refused_lines(f"{line}\n{other}\nINFO up ready\n") == [f"{ACCOUNT}: PATCH '/api/v1/nodes/n': 'no'"]
