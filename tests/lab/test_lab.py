"""The lab's commands: what they read, print and refuse."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from apportion.apis.errors import InputError
from apportion.cli import lab
from apportion.cli.lab import app
from apportion.lab import baselines, mig100, openb, rate, reporting, trace

RUNNER = CliRunner()
SOAK = bool(os.environ.get("APPORTION_SOAK"))
OPENB = Path(os.environ.get("APPORTION_OPENB", "data/openb"))
needs_trace = pytest.mark.skipif(
    not trace.there(OPENB),
    reason=f"no openb trace in {OPENB}: set APPORTION_OPENB to a folder made from {trace.SOURCE}",
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A trace of three nodes and four kinds of pod, in the real one's form."""
    _table(
        tmp_path / "nodes.csv",
        ("sn", "cpu_milli", "memory_mib", "gpu", "model"),
        [
            ("n0", 32000, 65536, 2, "T4"),
            ("n1", 32000, 65536, 2, "P100"),
            ("n2", 16000, 65536, 0, ""),
        ],
    )
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
    _table(
        tmp_path / "pods-default.csv",
        columns,
        [
            ("p0", 1000, 1024, 1, 500, ""),
            ("p1", 1000, 1024, 1, 1000, "T4"),
            ("p2", 1000, 1024, 2, 1000, ""),
            ("p3", 4000, 1024, 0, 0, ""),
        ],
    )
    orders = {"42": {"pods": [0, 1, 0, 3, 2, 0, 1, 0], "node_rank": [1, 0, 2]}}
    (tmp_path / "orders-default.json").write_text(json.dumps(orders))
    return tmp_path


def _table(path: Path, header: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.mark.parametrize("policy", openb.POLICY_NAMES)
def test_every_policy_replays_a_trace(small: Path, policy: str) -> None:
    result = openb.run(trace.load(small, "default"), 42, policy)
    assert result["policy"] == policy
    assert set(result) >= {"variant", "seed", "policy", "95", "100", "130"}


def test_openb_prints_runs_as_json(small: Path) -> None:
    done = RUNNER.invoke(app, ["openb", "--data", str(small), "--seeds", "42", "-o", "json"])
    assert done.exit_code == 0, done.output
    runs = json.loads(done.stdout)["runs"]
    assert {run["policy"] for run in runs} == {"fragmentation", "first-fit", "best-fit", "dot-product", "fgd"}
    assert all({"variant", "seed", "95", "100", "130"} <= set(run) for run in runs)


def test_openb_prints_one_table(small: Path) -> None:
    done = RUNNER.invoke(app, ["openb", "--data", str(small), "--learned"])
    assert done.exit_code == 0, done.output
    assert "fragmentation-learned" in done.stdout
    assert "130 %" in done.stdout


def test_rate_makes_the_same_decisions_both_ways(small: Path) -> None:
    loaded = trace.load(small, "default")
    rows, every = rate.race(loaded, 42, [(rate.ROWS, 1), (rate.EVERY_NODE, 1)])
    assert rows["fingerprint"] == every["fingerprint"]
    done = RUNNER.invoke(app, ["rate", "--data", str(small), "--copies", "2", "-o", "json"])
    assert [run["nodes"] for run in json.loads(done.stdout)["runs"]] == [3, 3, 6]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["openb", "--data", "/nowhere"], "--data"),
        (["openb", "--seeds", "x"], "--seeds"),
        (["openb", "--seeds", "5-3"], "--seeds"),
        (["mig100", "--mix", "1,2"], "--mix"),
        (["mig100", "--mix", "nan,1,1,1,1,1"], "--mix"),
        (["mig100", "--policy", "tetris", "--mix", "uniform", "--seeds", "1"], "policy"),
    ],
)
def test_bad_arguments_end_with_one_line_and_code_2(arguments: list[str], named: str) -> None:
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 2
    assert named in done.stderr
    assert "Traceback" not in done.output + done.stderr


def test_a_seed_that_the_trace_does_not_have_is_refused(small: Path) -> None:
    done = RUNNER.invoke(app, ["openb", "--data", str(small), "--seeds", "7"])
    assert done.exit_code == 2
    assert "orders for 42" in done.stderr


def test_bench_says_where_to_get_missing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mig100, "ARRIVALS", 10)
    monkeypatch.setattr(mig100, "WARM_UP_LIFETIMES", 0)
    monkeypatch.setattr(lab, "RECLAIM_NODES", 4)
    done = RUNNER.invoke(app, ["bench", "--data", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert trace.SOURCE in done.stderr.replace("\n", "")
    assert "MIG-100 uniform" in done.stdout


def test_bench_prints_one_table_with_ours_beside_each_baseline(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mig100, "ARRIVALS", 10)
    monkeypatch.setattr(mig100, "WARM_UP_LIFETIMES", 0)
    monkeypatch.setattr(lab, "RECLAIM_NODES", 4)
    monkeypatch.setattr(trace, "VARIANTS", ("default",))
    done = RUNNER.invoke(app, ["bench", "--data", str(small)])
    assert done.exit_code == 0, done.output
    (heading,) = (line for line in done.stdout.splitlines() if "measure" in line)
    for column in ("ours", "learned", "first-fit", "best-fit", "dot-prod", "FGD", "least lost", "naive"):
        assert column in heading
    for case in ("openb default", "MIG-100 bimodal", "openb, 3 nodes", "openb, 12 nodes"):
        assert case in done.stdout


@pytest.mark.parametrize(("written", "meant"), [("FGD", "fgd"), ("BestFit", "best-fit"), ("DotProd", "dot-product")])
def test_policies_may_be_written_as_in_the_papers(small: Path, written: str, meant: str) -> None:
    done = RUNNER.invoke(app, ["openb", "--data", str(small), "--policy", written, "-o", "json"])
    assert [run["policy"] for run in json.loads(done.stdout)["runs"]] == [meant]


def test_seeds_are_read_as_people_write_them() -> None:
    assert reporting.numbers_of("42-44,7", "--seeds") == [42, 43, 44, 7]
    with pytest.raises(InputError):
        reporting.numbers_of("", "--seeds")


@needs_trace
@pytest.mark.parametrize(("policy", "published"), [("best-fit", "05-BestFit"), ("dot-product", "02-DotProd")])
def test_published_policies_are_reproduced_to_two_decimals(policy: str, published: str) -> None:
    expected = trace.published(OPENB)["default"][published]["per_seed_130"]["42"]
    result = openb.run(trace.load(OPENB, "default"), 42, policy)
    assert round(result["130"], 2) == expected


@needs_trace
@pytest.mark.soak
def test_our_policy_packs_tighter_than_the_published_one() -> None:
    """Paired on the same orders: the means that the project promises."""
    gains = [_gains(trace.load(OPENB, variant)) for variant in (trace.VARIANTS if SOAK else trace.VARIANTS[:1])]
    assert min(gain[130] for gain in gains) >= 0.5
    assert min(gain[100] for gain in gains) >= 0.3
    assert sum(gain[130] for gain in gains) / len(gains) >= 0.8


def _gains(loaded: trace.Trace) -> dict[int, float]:
    seeds = range(42, 47) if SOAK else (42,)
    pairs = [[openb.run(loaded, seed, policy) for policy in (openb.OURS, "fgd")] for seed in seeds]
    return {
        column: sum(ours[str(column)] - theirs[str(column)] for ours, theirs in pairs) / len(pairs)
        for column in (100, 130)
    }


@needs_trace
@pytest.mark.soak
def test_learning_the_mix_costs_little() -> None:
    for variant in trace.VARIANTS if SOAK else trace.VARIANTS[:1]:
        loaded = trace.load(OPENB, variant)
        seeds = range(42, 47) if SOAK else (42,)
        runs = [[openb.run(loaded, seed, name)["130"] for name in openb.POLICY_NAMES[:2]] for seed in seeds]
        assert sum(given - learned for given, learned in runs) / len(runs) <= 0.2


MIXES = [("uniform", 96.0, 91.4), ("skew-small", 97.1, 92.1), ("skew-big", 94.7, 91.5), ("bimodal", 95.2, 90.5)]


@pytest.mark.soak
@pytest.mark.parametrize(("mix", "acceptance", "units"), MIXES if SOAK else MIXES[1:2])
def test_slices_are_accepted_at_the_published_level(mix: str, acceptance: float, units: float) -> None:
    runs = [mig100.run(mix, seed, "fragmentation") for seed in (range(1, 5) if SOAK else (1,))]
    assert sum(run["acceptance"] for run in runs) / len(runs) >= acceptance - 0.2
    assert sum(run["unit_acceptance"] for run in runs) / len(runs) >= units - 0.2


def test_typical_pods_are_the_commonest_that_make_up_most(small: Path) -> None:
    typical = baselines._typical(trace.load(small, "default"))
    assert sum(share for _, share in typical) == pytest.approx(1.0)
