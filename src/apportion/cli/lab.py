"""`apportion lab`: scenarios, fair shares, benchmarks and trace replays of the core."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec

import typer

from apportion.apis.errors import ApportionError, InputError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Scenarios, fair shares, benchmarks and trace replays of the core.",
)

DATA = Path("data/openb")
NOT_OK = 1
BAD_INPUT = 2
ALL = "all"
RECLAIM_NODES = 1000
TURNS_PODS, TURNS_QUEUES = 10_000, 200

Run = dict[str, Any]
P = ParamSpec("P")


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("-o", "--output", help="Output format: text or json.")]
DataOption = Annotated[Path, typer.Option(help="Directory with the openb trace.", envvar="APPORTION_OPENB")]
PolicyOption = Annotated[str, typer.Option(help="Run only this policy; default: ours and all baselines.")]


def errors_reported(function: Callable[P, None]) -> Callable[P, None]:
    """Invalid input ends with one line on stderr and exit code 2."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except ApportionError as error:
            print(f"apportion lab: {error}", file=sys.stderr)  # noqa: T201
            raise typer.Exit(BAD_INPUT) from None

    return guarded


@app.command()
@errors_reported
def openb(
    data: DataOption = DATA,
    variant: Annotated[str, typer.Option(help="Request list of the trace, or all.")] = "default",
    seeds: Annotated[str, typer.Option(help="Arrival orders, such as 42-46.")] = "42",
    policy: PolicyOption = "",
    *,
    learned: Annotated[
        bool, typer.Option("--learned", help="Our policy learns the request mix from arriving pods.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Replay a production trace: the share of GPUs allocated after requests for 95, 100 and 130 % of them."""
    runs = _openb(data, variant, seeds, policy, learned=learned)
    _print(runs, output, lambda: _openb_table(runs))


@app.command()
@errors_reported
def mig100(
    mix: Annotated[str, typer.Option(help="A named mix, six weights separated by commas, or all.")] = ALL,
    seeds: Annotated[str, typer.Option(help="Random seeds, such as 1-4.")] = "1-4",
    policy: PolicyOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Request MIG slices on 100 GPUs: the share of accepted requests."""
    runs = _mig100(mix, seeds, policy)
    _print(runs, output, lambda: _mig100_table(runs))


@app.command()
@errors_reported
def rate(
    data: DataOption = DATA,
    copies: Annotated[
        int, typer.Option(help="Copies of the nodes of the trace for the large fleet.", min=1, max=64)
    ] = 4,
    seed: Annotated[int, typer.Option(help="Arrival order.")] = 42,
    limit: Annotated[int, typer.Option(help="Number of pods per copy; 0: all.", min=0)] = 0,
    output: OutputOption = Output.TEXT,
) -> None:
    """Decisions per second: price rows compared with one pass over all nodes, and with a larger fleet."""
    runs = _rate(data, copies, seed, limit or None)
    _print(runs, output, lambda: _rate_table(runs))


@app.command()
def scenario(
    files: Annotated[list[str], typer.Argument(help="YAML files with scenarios; - reads standard input.")],
    output: OutputOption = Output.TEXT,
) -> None:
    """Run scenarios and compare the result with their expectations. The exit code is 1 unless all are ok."""
    from apportion.lab.scenarios import report, running

    results = running.run_files(files)
    if output is Output.JSON:
        print(report.as_json(results))  # noqa: T201
    else:
        report.show(results)
    if not all(result.ok for result in results):
        raise typer.Exit(NOT_OK)


@app.command()
@errors_reported
def fairness(
    file: Annotated[
        str, typer.Argument(help="JSON or YAML file with a case or a list of cases; - reads standard input.")
    ],
    output: Annotated[
        Literal["table", "json"], typer.Option("-o", "--output", help="Output format: table or json.")
    ] = "table",
) -> None:
    """Divide an amount among queues: the fair share of each queue, by quota, limit, priority and weight."""
    from apportion.lab.fairness import report, running

    results = running.run_file(file)
    if output == "json":
        print(report.as_json(results))  # noqa: T201
    else:
        report.show(results)


@app.command()
@errors_reported
def reclaim(
    nodes: Annotated[int, typer.Option(help="Nodes with 8 GPUs each.", min=2, max=10_000)] = 100,
    gang: Annotated[
        int, typer.Option(help="Pods of a gang that reclaims 8 GPUs each; 0: pods of one GPU that reclaim half.", min=0)
    ] = 0,
    output: OutputOption = Output.TEXT,
) -> None:
    """Time plans of evictions: a queue reclaims GPUs of a full cluster, and of one that is half as large."""
    runs = _reclaim(nodes, gang)
    _print(runs, output, lambda: _reclaim_table(runs))


@app.command()
@errors_reported
def turns(
    pods: Annotated[int, typer.Option(help="Pending pods of one GPU each.", min=2, max=1_000_000)] = TURNS_PODS,
    queues: Annotated[int, typer.Option(help="Queues that they wait in.", min=1, max=10_000)] = TURNS_QUEUES,
    output: OutputOption = Output.TEXT,
) -> None:
    """Time one round of decisions, and what order and fair shares cost of it; also for half of the pods."""
    runs = _turns(pods, queues)
    _print(runs, output, lambda: _turns_table(runs))


@app.command()
@errors_reported
def bench(
    data: DataOption = DATA,
    seeds: Annotated[str, typer.Option(help="Arrival orders of the trace.")] = "42",
    output: OutputOption = Output.TEXT,
) -> None:
    """Run all benchmarks, with their baselines: packing on the trace, MIG-100, decision rate, evictions, turns."""
    from apportion.lab import comparison, reporting, trace

    reporting.say(reporting.load_line())
    runs: list[Run] = []
    if trace.there(data):
        runs += _rate(data, 4, 42, None) + _openb(data, ALL, seeds, "", learned=True)
    else:
        reporting.say(
            f"no openb trace in {data}: skipped. Its source is {trace.SOURCE}; specify the directory with --data."
        )
    runs += _mig100(ALL, "1", "")
    runs += _reclaim(RECLAIM_NODES, 0) + _reclaim(RECLAIM_NODES, RECLAIM_NODES // 2)
    runs += _turns(TURNS_PODS, TURNS_QUEUES)
    _print(runs, output, lambda: reporting.show(comparison.table(runs)))


def _openb(data: Path, variant: str, seeds: str, policy: str, *, learned: bool) -> list[Run]:
    from apportion.lab import openb as lab
    from apportion.lab import reporting, trace

    numbers = reporting.numbers_of(seeds, "--seeds")
    if policy:
        policy = lab.known_as(policy)
        chosen = [lab.learning(policy) if learned else policy]
    else:
        chosen = [name for name in lab.POLICY_NAMES if learned or name != lab.learning(lab.OURS)]
    runs: list[Run] = []
    for name in trace.VARIANTS if variant == ALL else (variant,):
        loaded = trace.load(data, name)
        for seed in numbers:
            for each in chosen:
                total = len(loaded.arrival(seed).pods)
                with reporting.progress(f"openb {name} {seed} {each}", total) as advance:
                    runs.append(lab.run(loaded, seed, each, advance))
    return runs


def _mig100(mix: str, seeds: str, policy: str) -> list[Run]:
    from apportion.lab import mig100 as lab
    from apportion.lab import reporting

    runs: list[Run] = []
    for name in lab.MIXES if mix == ALL else (mix,):
        for seed in reporting.numbers_of(seeds, "--seeds"):
            for each in (policy,) if policy else lab.POLICY_NAMES:
                with reporting.progress(f"mig100 {name} {seed} {each}", lab.requests(name)) as advance:
                    runs.append(lab.run(name, seed, each, advance))
    return runs


def _rate(data: Path, copies: int, seed: int, limit: int | None) -> list[Run]:
    from apportion.lab import rate as lab
    from apportion.lab import reporting, trace

    loaded = trace.load(data, "default")
    contenders = [(lab.ROWS, 1), (lab.EVERY_NODE, 1)] + ([(lab.ROWS, copies)] if copies > 1 else [])
    pods = len(loaded.arrival(seed).pods[:limit])
    with reporting.progress("decision rate", pods * sum(times for _, times in contenders)) as advance:
        return lab.race(loaded, seed, contenders, limit, advance)


def _reclaim(nodes: int, gang: int) -> list[Run]:
    from apportion.lab import reclaim as lab

    if gang > nodes // 2:
        raise InputError("--gang", gang, f"must be at most {nodes // 2}: the queue is entitled to half of the nodes")
    return [lab.run(nodes, gang), lab.run(nodes // 2, gang // 2)]


def _turns(pods: int, queues: int) -> list[Run]:
    from apportion.lab import turns as lab

    return [lab.run(pods, queues), lab.run(pods // 2, queues)]


def _print(runs: list[Run], output: Output, show: Callable[[], object]) -> None:
    from apportion.lab import reporting

    if output is Output.JSON:
        print(reporting.as_json(runs))  # noqa: T201
    else:
        show()


def _openb_table(runs: list[Run]) -> None:
    from apportion.lab import reporting

    numbers = ("95", "100", "130", "decisions_per_second")
    rows = reporting.means(runs, ("variant", "policy"), numbers)
    columns = [("variant", "variant"), ("policy", "policy"), ("runs", "runs"), ("95", "95 %"), ("100", "100 %")]
    columns += [("130", "130 %"), ("decisions_per_second", "decisions/s")]
    title = "openb: % of GPUs allocated after requests for this share of them"
    reporting.show(reporting.table(title, rows, columns))


def _mig100_table(runs: list[Run]) -> None:
    from apportion.lab import reporting

    numbers = ("acceptance", "unit_acceptance", "largest_acceptance", "decisions_per_second")
    rows = reporting.means(runs, ("mix", "policy"), numbers)
    columns = [("mix", "mix"), ("policy", "policy"), ("runs", "runs"), ("acceptance", "% accepted")]
    columns += [
        ("unit_acceptance", "% of units"),
        ("largest_acceptance", "% of 7g"),
        ("decisions_per_second", "decisions/s"),
    ]
    reporting.show(reporting.table("MIG-100: requests accepted", rows, columns))


def _reclaim_table(runs: list[Run]) -> None:
    from apportion.lab import reporting

    rows = [run | {"slowest": 1000 * max(run["plan_seconds"])} for run in runs]
    columns = [("nodes", "nodes"), ("gang", "gang"), ("plans", "plans"), ("victims", "victims"), ("seconds", "seconds")]
    columns.append(("slowest", "slowest plan (ms)"))
    reporting.show(reporting.table(f"Plans of evictions ({reporting.load_line()})", rows, columns))
    large, small = (run["seconds"] for run in runs)
    reporting.say(f"twice the size compared with half of it: {large / small:.1f} times")


def _turns_table(runs: list[Run]) -> None:
    from apportion.lab import reporting

    rows = [run | {"part": 100 * run["order_seconds"] / run["seconds"]} for run in runs]
    columns = [("pods", "pods"), ("queues", "queues"), ("placed", "placed"), ("seconds", "seconds")]
    columns += [("order_seconds", "order and shares (s)"), ("part", "% of the round"), ("first_seconds", "first (s)")]
    reporting.show(reporting.table(f"A round of decisions ({reporting.load_line()})", rows, columns))
    large, small = (run["seconds"] for run in runs)
    reporting.say(f"twice the pods compared with half of them: {large / small:.1f} times")


def _rate_table(runs: list[Run]) -> None:
    from apportion.lab import reporting

    columns = [("method", "method"), ("nodes", "nodes"), ("decisions", "decisions"), ("placed", "placed")]
    columns.append(("decisions_per_second", "decisions/s"))
    reporting.show(reporting.table(f"Decision rate ({reporting.load_line()})", runs, columns))
    rows, naive, *larger = (run["decisions_per_second"] for run in runs)
    reporting.say(f"price rows compared with every node: {rows / naive:.1f} times")
    for speed in larger:
        reporting.say(f"larger fleet compared with smaller: {100 * speed / rows:.0f} %")
