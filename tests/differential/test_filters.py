"""The core's node filters let through exactly the nodes that kube-scheduler lets through."""

from __future__ import annotations

import pytest

from tests.differential import cases, judging


@pytest.mark.parametrize("world", list(cases.load()), ids=lambda world: f"world{world['seed']}")
def test_s04_nodes_are_filtered_as_kube_scheduler_does(world: judging.JSON) -> None:
    found = judging.disagreements(world)
    assert not found, "\n".join(map(str, found))
