"""The audit after a test: it finds what was left in a cluster that others use, and nothing else."""

from __future__ import annotations

import secrets

from tests.environments import audit
from tests.environments.cluster import Cluster
from tests.environments.waiting import until

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
