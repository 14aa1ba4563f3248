"""The planes run, and the operator reports their actual status."""

from __future__ import annotations

import json
import re

from tests.e2e.current_cluster import DAS, CurrentCluster
from tests.story.slice_story import until

TITLE = "Operator"


def test_every_plane_runs(current: CurrentCluster) -> None:
    listed = current.kubectl("get", "pods", "-n", DAS)
    for plane in ("das-operator", "das-operator-webhook", "das-scheduler", "das-daemonset"):
        assert re.search(rf"^{plane}-[a-z0-9]+(-[a-z0-9]+)?\s+1/1\s+Running", listed, re.MULTILINE), listed


def test_its_conditions_say_available(current: CurrentCluster) -> None:
    until(lambda: conditions(current) == WELL, lambda: f"the conditions are {conditions(current)}")


def test_nodes_offer_slices_and_memory(current: CurrentCluster) -> None:
    node = current.sliced_node()["metadata"]["name"]
    described = current.kubectl("describe", "node", node)
    assert "mig.das.com/" in described
    assert "gpu.das.com/mem" in described


WELL = {"Available": "True", "Progressing": "False", "Degraded": "False"}


def conditions(current: CurrentCluster) -> dict[str, str]:
    found = json.loads(current.kubectl("get", "dasoperator", "cluster", "-n", DAS, "-o", "json"))
    return {entry["type"]: entry["status"] for entry in found.get("status", {}).get("conditions", [])}
