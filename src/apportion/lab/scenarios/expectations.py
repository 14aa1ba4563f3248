"""What a scenario expects, held against what came out; every difference is one sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from apportion.lab.scenarios.decisions import EXTRA_CYCLES, ScenarioResult
from apportion.lab.scenarios.fleets import device_name
from apportion.lab.scenarios.schema import Expect, Scenario, as_texts, as_tuple


def problems(scenario: Scenario, result: ScenarioResult) -> list[str]:
    expect = scenario.expect
    pods = {name: job.pod_names() for job in scenario.jobs for name in (job.name,)}
    pods |= {pod: (pod,) for members in list(pods.values()) for pod in members if len(members) > 1}
    jobs = {pod: job.name for job in scenario.jobs for pod in (job.name, *job.pod_names())}
    found = [
        *_states(expect, pods, result),
        *_where(expect, pods, result),
        *_devices(expect, result),
        *_company(expect, pods, result),
        *_waits(expect, jobs, result),
        *_uses(expect, result),
        *_queues(expect, pods, result),
        *result.unsound,
    ]
    if expect.evictions is not None and result.evictions > expect.evictions:
        found.append(f"{result.evictions} pods were evicted, expected at most {expect.evictions}")
    found += [f"{name} was placed within {EXTRA_CYCLES} cycles after the last placement" for name in result.late]
    return found


def _states(expect: Expect, pods: dict[str, tuple[str, ...]], result: ScenarioResult) -> Iterator[str]:
    for name in expect.running:
        missing = [pod for pod in pods[name] if pod not in result.places]
        if missing:
            wait = result.waits.get(name)
            why = f": {wait.message}" if wait else ""
            yield f"{_list(missing)} should be running but is pending{why}"
    for name in expect.pending:
        placed = [pod for pod in pods[name] if pod in result.places]
        if placed:
            yield f"{_list(placed)} should be pending but runs on {_list([result.places[pod].node for pod in placed])}"


def _where(expect: Expect, pods: dict[str, tuple[str, ...]], result: ScenarioResult) -> Iterator[str]:
    for name, where in expect.where.items():
        placed = [pod for pod in pods[name] if pod in result.places or name not in expect.partly]
        nodes = [result.places[pod].node if pod in result.places else "no node" for pod in placed]
        wanted = [where] * len(nodes) if isinstance(where, str) else where
        if sorted(nodes) != sorted(wanted):
            yield f"{name} should be on {_list(wanted)} but is on {_list(nodes)}"

    for name, avoided in expect.not_where.items():
        nodes = [result.places[pod].node for pod in pods[name] if pod in result.places]
        if not nodes or set(nodes) & set(as_texts(avoided)):
            yield f"{name} should not be on {_list(as_texts(avoided))} but is on {_list(nodes) or 'no node'}"


def _devices(expect: Expect, result: ScenarioResult) -> Iterator[str]:
    for name, devices in expect.device.items():
        place = result.places.get(name)
        wanted = [device_name(place.node, index) for index in as_tuple(devices)] if place else []
        has = list(dict.fromkeys(place.devices)) if place else []
        if not place or sorted(has) != sorted(wanted):
            yield f"{name} should have GPU {_list(as_tuple(devices))} of its node but has {_list(has) or 'none'}"
    for name, starts in expect.start.items():
        place = result.places.get(name)
        if not place or place.starts != as_tuple(starts):
            has_starts = _list(place.starts if place else ()) or "no slice"
            yield f"the slices of {name} should start at {_list(as_tuple(starts))} but start at {has_starts}"


def _company(expect: Expect, pods: dict[str, tuple[str, ...]], result: ScenarioResult) -> Iterator[str]:
    for group in expect.together:
        held = [_held(pods[name], result) for name in group]
        if not all(held) or not set.intersection(*held):
            yield f"{_list(group)} should have a GPU in common but have {_each(group, held)}"
    for group in expect.apart:
        held = [_held(pods[name], result) for name in group]
        if not all(held) or sum(len(each) for each in held) != len(set.union(*held)):
            yield f"{_list(group)} should have no GPU in common but have {_each(group, held)}"


def _held(pods: Sequence[str], result: ScenarioResult) -> set[str]:
    return {device for pod in pods if pod in result.places for device in result.places[pod].devices}


def _waits(expect: Expect, jobs: dict[str, str], result: ScenarioResult) -> Iterator[str]:
    for name, reason in expect.reason.items():
        wait = result.waits.get(jobs[name])
        has = (wait.nodes if isinstance(reason, dict) else wait.reason) if wait else "none: it is running"
        if isinstance(has, dict) and isinstance(reason, dict):
            has = {node: has.get(node, "none") for node in reason}
        if has != reason:
            yield f"the reason of {name} should be {reason} but is {has}"
    for name, layer in expect.layer.items():
        wait = result.waits.get(jobs[name])
        if wait is None or wait.layer != layer:
            has_layer = wait.layer if wait else "none: it is running"
            yield f"the layer that blocks {name} should be {layer} but is {has_layer}"
    for name, texts in expect.message.items():
        wait = result.waits.get(jobs[name])
        for text in as_texts(texts):
            if wait is None or text not in wait.message:
                has_text = repr(wait.message) if wait else "nothing: it is running"
                yield f"the message of {name} should contain {text!r} but is {has_text}"


def _uses(expect: Expect, result: ScenarioResult) -> Iterator[str]:
    for node, uses in expect.uses.items():
        if result.uses[node] != uses:
            yield f"the GPUs of {node} should be {_list(uses)} but are {_list(result.uses[node])}"


def _queues(expect: Expect, pods: dict[str, tuple[str, ...]], result: ScenarioResult) -> Iterator[str]:
    for name, share in expect.shares.items():
        if result.shares.get(name) != Fraction(str(share)) * 1000:
            yield f"the fair share of {name} should be {share} but is {result.shares.get(name, 0) / 1000:g}"
    for name, partly in expect.partly.items():
        running = sum(pod in result.places for pod in pods[name])
        if (running, len(pods[name]) - running) != (partly.running, partly.pending):
            yield f"{partly.running} pods of {name} should be running but {running} are"


def _each(group: Sequence[str], held: Sequence[set[str]]) -> str:
    return "; ".join(f"{name}: {_list(sorted(each)) or 'none'}" for name, each in zip(group, held, strict=True))


def _list(items: Sequence[object]) -> str:
    return ", ".join(str(item) for item in items)
