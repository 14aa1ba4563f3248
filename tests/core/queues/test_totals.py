"""What the queues share."""

from __future__ import annotations

from apportion.apis import names
from apportion.core.queues import totals
from tests.builders.accelerators import A100
from tests.builders.fleets import add_node, fleet_of, node_facts


def test_q08_static_devices_that_nobody_reports_are_shared_too() -> None:
    fleet = fleet_of()
    add_node(fleet, node_facts("static", **{f"{names.NVIDIA_MIG_PREFIX}1g.5gb": 7}))
    assert totals.total(fleet).gpu == 7 * 125
    add_node(fleet, node_facts("whole", **{names.NVIDIA_GPU: 2}))
    assert totals.total(fleet).gpu == 7 * 125 + 2000


def test_q08_a_node_whose_gpus_are_reported_counts_by_them() -> None:
    fleet = fleet_of()
    add_node(fleet, node_facts("n", **{f"{names.NVIDIA_MIG_PREFIX}1g.5gb": 7}), [(A100, True)] * 2)
    assert totals.total(fleet).gpu == 2000
