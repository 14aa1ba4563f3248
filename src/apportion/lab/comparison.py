"""All benchmarks in one table: a line per case, ours beside each baseline of the same run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from apportion.lab import mig100, openb, rate, reporting

Run = dict[str, Any]

_COLUMNS = {
    openb.OURS: "ours",
    openb.learning(openb.OURS): "learned",
    "first-fit": "first-fit",
    "best-fit": "best-fit",
    "dot-product": "dot-prod",
    "fgd": "FGD",
    mig100.LEAST_UNUSABLE: "least lost",
    rate.EVERY_NODE: "naive",
}


def table(runs: Sequence[Run]) -> Table:
    columns = [("case", "case"), ("measure", "measure"), *_COLUMNS.items()]
    return reporting.table("Apportion compared with its baselines", list(lines(runs)), columns)


def lines(runs: Sequence[Run]) -> Iterator[Run]:
    """One entry per case and measure; policies are its keys."""
    packed = [run for run in runs if "130" in run]
    for column in ("100", "130"):
        yield from _cases(packed, "variant", column, "openb {}", f"% at {column} %")
    sliced = [run for run in runs if "mix" in run]
    for number, measure in (("acceptance", "% accepted"), ("unit_acceptance", "% of units")):
        yield from _cases(sliced, "mix", number, "MIG-100 {}", measure)
    timed = [run for run in runs if "method" in run]
    for nodes in dict.fromkeys(run["nodes"] for run in timed):
        speeds = {run["method"]: f"{run['decisions_per_second']:,.0f}" for run in timed if run["nodes"] == nodes}
        line = {"case": f"openb, {nodes:,} nodes", "measure": "decisions/s"}
        yield line | {openb.OURS if method == rate.ROWS else method: speed for method, speed in speeds.items()}
    yield from _evictions(runs)
    yield from _turns(runs)


def _evictions(runs: Sequence[Run]) -> Iterator[Run]:
    """Our time on a cluster, and what half of the cluster takes."""
    timed = [run for run in runs if "plan_seconds" in run]
    for run, half in zip(timed[::2], timed[1::2], strict=True):
        kind = "gang" if run["gang"] else "pods"
        case = f"{run['nodes']:,} nodes"
        yield {"case": f"reclaim, {case}", "measure": f"{kind}, s", openb.OURS: run["seconds"]}
        yield {
            "case": f"of {half['nodes']:,} nodes",
            "measure": f"{kind}, x",
            openb.OURS: run["seconds"] / half["seconds"],
        }


def _turns(runs: Sequence[Run]) -> Iterator[Run]:
    """What order and shares cost of a round."""
    for run in runs:
        if "order_seconds" in run:
            case = f"turns, {run['pods']:,} pods"
            part = 100 * run["order_seconds"] / run["seconds"]
            yield {"case": case, "measure": "round, s", openb.OURS: run["seconds"]}
            yield {"case": case, "measure": "% for order", openb.OURS: part}


def _cases(runs: Sequence[Run], key: str, number: str, name: str, measure: str) -> Iterator[Run]:
    means = reporting.means(runs, (key, "policy"), (number,))
    for case in dict.fromkeys(run[key] for run in runs):
        numbers = {mean["policy"]: mean[number] for mean in means if mean[key] == case}
        yield {"case": name.format(case), "measure": measure} | numbers
