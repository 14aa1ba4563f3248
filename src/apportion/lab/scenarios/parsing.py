"""From plain data to a checked scenario; errors name the field, the value and the fix."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from apportion.apis.errors import InputError
from apportion.lab.scenarios import checks, printable
from apportion.lab.scenarios.schema import Expect, Job, Scenario, ScenarioNode, ScenarioPart, ScenarioQueue

T = TypeVar("T", bound=ScenarioPart)

_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")


def parse(raw: Any) -> Scenario:
    """Nodes, queues, jobs and expectation are converted one by one, so that an error can name which is wrong."""
    if not isinstance(raw, dict):
        raise InputError("scenario", raw, "must be a mapping with name, nodes, jobs and expect")
    printable.check(raw)
    nodes, queues = raw.get("nodes", {}), raw.get("queues", {})
    jobs, expect = raw.get("jobs", []), raw.get("expect")
    if not isinstance(nodes, dict):
        raise InputError("nodes", nodes, "must map node names to nodes, such as {n0: {gpus: 2}}")
    if not isinstance(queues, dict):
        raise InputError("queues", queues, "must map queue names to queues, such as {a: {quota: 2}}")
    if not isinstance(jobs, list):
        raise InputError("jobs", jobs, "must be a list of jobs, oldest first")
    parts: dict[str, Any] = {
        "nodes": {name: _convert(node, ScenarioNode, f"nodes.{name}") for name, node in nodes.items()},
        "queues": {name: _convert(queue, ScenarioQueue, f"queues.{name}") for name, queue in queues.items()},
        "jobs": [_convert(job, Job, _job_field(job, number)) for number, job in enumerate(jobs)],
    }
    if expect is not None:
        parts["expect"] = _convert(expect, Expect, "expect")
    scenario = _convert({**raw, **parts}, Scenario, "")
    checks.consistent(scenario)
    return scenario


def _job_field(job: Any, number: int) -> str:
    named = job.get("name") if isinstance(job, dict) else None
    return f"jobs.{named}" if isinstance(named, str) and named else f"jobs[{number}]"


def _convert(raw: Any, form: type[T], field: str) -> T:
    try:
        return msgspec.convert(raw, form)
    except msgspec.ValidationError as error:
        raise _located(str(error), raw, form, field) from None


def _located(text: str, raw: Any, form: type[ScenarioPart], field: str) -> InputError:
    """The error with its full path, the value, and a valid alternative."""
    message, _, path = text.partition(" - at ")
    where, value = _follow(raw, path.strip("`").rpartition("$")[2])
    where = f"{field}{where}"
    if unknown := _UNKNOWN.match(message):
        name = unknown["name"]
        known = f"; keys are {', '.join(_keys(form))}" if where == field else ""
        found = value.get(name) if isinstance(value, dict) else value
        return InputError(_joined(where, name), found, f"is not a key of this form{known}", code="UnknownKey")
    if missing := _MISSING.match(message):
        return InputError(where.lstrip(".") or "scenario", value, f"needs {missing['name']}")
    return InputError(where.lstrip(".") or "scenario", value, message[:1].lower() + message[1:].replace("`", ""))


def _follow(raw: Any, path: str) -> tuple[str, Any]:
    """As far as the path says where to go: of a mapping with free keys it does not tell which one."""
    where = ""
    for step in _STEP.finditer(path.partition("[...]")[0]):
        key: Any = step["name"] if step["name"] is not None else int(step["index"])
        try:
            raw = raw[key]
        except (KeyError, IndexError, TypeError):
            break
        where += step[0]
    return where, raw


def _joined(where: str, name: str) -> str:
    return f"{where}.{name}".lstrip(".")


def _keys(form: type[ScenarioPart]) -> list[str]:
    return [each.encode_name for each in msgspec.structs.fields(form)]
