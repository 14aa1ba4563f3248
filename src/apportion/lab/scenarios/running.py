"""Run scenarios: under each policy, in each order, on both paths of the core, and say what is not as expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import msgspec

from apportion.apis.errors import ApportionError
from apportion.lab.scenarios import checks, decisions, expectations, files
from apportion.lab.scenarios.schema import Scenario

_MOST_PROBLEMS = 20  # of one scenario


@dataclass(frozen=True)
class CheckedScenario:
    name: str
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def run_files(paths: Iterable[str]) -> list[CheckedScenario]:
    return [run_entry(entry) for path in paths for entry in files.read(path)]


def run_entry(entry: files.ScenarioEntry) -> CheckedScenario:
    if entry.scenario is None:
        return CheckedScenario(entry.name, (entry.problem,))
    try:
        return CheckedScenario(entry.name, run(entry.scenario))
    except ApportionError as error:
        return CheckedScenario(entry.name, (f"{entry.where}: {error}",))


def run(scenario: Scenario) -> tuple[str, ...]:
    """What is not as expected, empty if all is well; raises InputError for nodes and jobs that cannot be built."""
    found: dict[str, None] = {}
    for label, variant, policy in _variants(scenario):
        for problem in _run_once(variant, policy):
            found[f"{label}{problem}"] = None
        if len(found) >= _MOST_PROBLEMS:
            break
    return tuple(found)[:_MOST_PROBLEMS]


def _run_once(scenario: Scenario, policy: str) -> list[str]:
    """Both paths must come to the same result."""
    result = decisions.run(scenario, policy, plain=False)
    found = expectations.problems(scenario, result)
    plain = decisions.run(scenario, policy, plain=True)
    if plain != result:
        found.append(f"looking at every node gives another outcome: {_difference(plain, result)}")
    return found


def _difference(plain: decisions.ScenarioResult, result: decisions.ScenarioResult) -> str:
    pods = sorted({*plain.places, *result.places})
    differing = [pod for pod in pods if plain.places.get(pod) != result.places.get(pod)]
    listed = "; ".join(f"{pod}: {plain.places.get(pod)}, not {result.places.get(pod)}" for pod in differing)
    return listed or f"{plain.waits}, not {result.waits}"


def _variants(scenario: Scenario) -> Iterator[tuple[str, Scenario, str]]:
    """The scenario under each of its policies and with slices in each order, labelled where there are several."""
    policies = checks.policies(scenario)
    for order_label, ordered in _orders(scenario):
        for policy in policies:
            label = f"policy {policy}: " if len(policies) > 1 else ""
            yield f"{label}{order_label}", ordered, policy


def _orders(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    shuffled = next((job for job in scenario.jobs if job.any_order), None)
    if shuffled is None:
        yield "", scenario
        return
    assert isinstance(shuffled.mig, list)
    for order in sorted(set(permutations(shuffled.mig))):
        yield f"in the order {', '.join(order)}: ", _with_order(scenario, shuffled.name, order)


def _with_order(scenario: Scenario, name: str, order: Sequence[str]) -> Scenario:
    jobs = [
        msgspec.structs.replace(job, mig=list(order), any_order=False) if job.name == name else job
        for job in scenario.jobs
    ]
    return msgspec.structs.replace(scenario, jobs=jobs)
