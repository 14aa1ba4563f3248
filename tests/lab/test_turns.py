"""`apportion lab turns`: what order and fair shares cost."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from apportion.cli.lab import app
from apportion.lab import comparison, turns

RUNNER = CliRunner()


def test_q04_every_pod_has_its_turn_and_a_place() -> None:
    done = RUNNER.invoke(app, ["turns", "--pods", "60", "--queues", "12", "-o", "json"])
    assert done.exit_code == 0, done.output
    large, small = json.loads(done.stdout)["runs"]
    assert (large["pods"], large["queues"], large["placed"]) == (60, 12, 60)
    assert small["placed"] == 30
    assert large["first_seconds"] <= large["seconds"]
    assert 0 < large["order_seconds"] < large["seconds"]


def test_the_table_shows_what_order_costs() -> None:
    done = RUNNER.invoke(app, ["turns", "--pods", "16", "--queues", "4"])
    assert done.exit_code == 0, done.output
    assert "% of the round" in done.output


def test_bench_shows_rounds() -> None:
    lines = list(comparison.lines([turns.run(16, 4)]))
    assert [(line["case"], line["measure"]) for line in lines] == [
        ("turns, 16 pods", "round, s"),
        ("turns, 16 pods", "% for order"),
    ]
