"""`apportion lab reclaim`: plans of evictions on a full cluster."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from apportion.cli.lab import app
from apportion.lab import comparison, reclaim

RUNNER = CliRunner()


@pytest.mark.parametrize(("gang", "plans"), [(0, 16), (2, 1)])
def test_q06_half_of_the_cluster_is_reclaimed_by_one_victim_per_gpu(gang: int, plans: int) -> None:
    done = RUNNER.invoke(app, ["reclaim", "--nodes", "4", "--gang", str(gang), "-o", "json"])
    assert done.exit_code == 0, done.output
    large, small = json.loads(done.stdout)["runs"]
    assert (large["nodes"], large["plans"], large["victims"]) == (4, plans, 16)
    assert (small["nodes"], small["victims"]) == (2, 8)
    assert len(large["plan_seconds"]) == plans
    assert large["seconds"] >= sum(large["plan_seconds"]) - 0.001


def test_the_table_compares_with_half_the_size() -> None:
    done = RUNNER.invoke(app, ["reclaim", "--nodes", "4"])
    assert done.exit_code == 0, done.output
    assert "slowest plan (ms)" in done.output
    assert "twice the size compared with half of it" in done.output


def test_a_gang_of_more_than_half_of_the_nodes_is_refused() -> None:
    done = RUNNER.invoke(app, ["reclaim", "--nodes", "4", "--gang", "3"])
    assert done.exit_code == 2
    assert "--gang: 3: must be at most 2" in done.output


def test_bench_shows_plans_beside_half_the_size() -> None:
    lines = list(comparison.lines([reclaim.run(4, 2), reclaim.run(2, 1)]))
    assert [line["case"] for line in lines] == ["reclaim, 4 nodes", "of 2 nodes"]
    assert [line["measure"] for line in lines] == ["gang, s", "gang, x"]
