"""`apportion lab fairness`: what it reads, prints and refuses."""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from apportion.cli.lab import app
from apportion.lab.fairness import files
from tests.core.queues import oracle, trees

RUNNER = CliRunner()
TWO_QUEUES = {"total": 11000, "queues": [{"name": "a", "quota": 2000, "request": 6000}, {"name": "b", "request": 9000}]}


def shares(text: str) -> list[dict[str, int]]:
    """Of each case of a text on standard input."""
    done = RUNNER.invoke(app, ["fairness", "-", "-o", "json"], input=text)
    assert done.exit_code == 0, done.output
    return [case["shares"] for case in json.loads(done.stdout)["cases"]]


def refusal(text: str) -> str:
    done = RUNNER.invoke(app, ["fairness", "-"], input=text)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def case_with(**queue: Any) -> str:
    return json.dumps({"total": 1000, "queues": [{"name": "a", **queue}]})


def test_q03_lab_fairness_prints_the_shares_of_a_case() -> None:
    assert shares(json.dumps(TWO_QUEUES)) == [{"a": 6000, "b": 5000}]


@pytest.mark.parametrize("parent", [None, ""])
def test_q03_a_queue_with_an_empty_parent_is_a_root(parent: str | None) -> None:
    assert shares(case_with(parent=parent, request=300)) == [{"a": 300}]


def test_q03_lab_fairness_prints_the_shares_of_each_case_in_its_order() -> None:
    assert shares(json.dumps([TWO_QUEUES, {"total": 5, "queues": []}, TWO_QUEUES | {"total": 3000}])) == [
        {"a": 6000, "b": 5000},
        {},
        {"a": 2500, "b": 500},
    ]


def test_q03_lab_fairness_reads_a_file_and_draws_a_table(tmp_path: Path) -> None:
    file = tmp_path / "case.json"
    file.write_text(json.dumps(TWO_QUEUES | {"queues": [*TWO_QUEUES["queues"], {"name": "c[red]", "weight": 0.1}]}))
    done = RUNNER.invoke(app, ["fairness", str(file)])
    assert done.exit_code == 0, done.output
    heading, *rows = [line.split() for line in done.stdout.splitlines()]
    assert heading == ["CASE", "QUEUE", "PARENT", "PRIORITY", "QUOTA", "LIMIT", "WEIGHT", "REQUEST", "FAIR", "SHARE"]
    assert rows[0] == ["0", "a", "-", "100", "2000", "unlimited", "1", "6000", "6000"]
    assert rows[2] == ["0", "c[red]", "-", "100", "0", "unlimited", "0.1", "0", "0"]


def test_q03_the_example_of_the_documentation_is_right() -> None:
    page = (Path(__file__).parents[2] / "docs/queues.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (found,) = shares(example)
    assert found == {"research": 4000, "product": 3000, "batch": 1000, "vision": 3000, "speech": 1000}
    for name, share in found.items():
        assert f"`{name}` {share}" in page


def test_q03_lab_fairness_reads_yaml() -> None:
    text = """
- total: 900
  queues:
  - {name: on, weight: 1e-1, request: 9000, created: 2026-01-01T00:00:00Z}
  - {name: p, weight: 0.2, limit: -1, parent: null}
  - {name: child, parent: p, request: 9000}
"""
    assert shares(text) == [{"on": 300, "p": 600, "child": 600}]


@pytest.mark.parametrize(
    ("weight", "expected"),
    [("0", 0), ("-0.0", 0), ("0.5", 333), ("0.50", 333), ("5e-1", 333), ("1", 500), ("1e3", 999), ("1E+300", 1000)],
)
def test_q03_weights_are_read_as_they_are_written(weight: str, expected: int) -> None:
    first = f'{{"name": "a", "weight": {weight}, "request": 5000}}'
    assert shares(f'{{"total": 1000, "queues": [{first}, {{"name": "b", "request": 5000}}]}}') == [
        {"a": expected, "b": 1000 - expected}
    ]


def test_q03_a_weight_keeps_digits_that_a_float_would_lose() -> None:
    """The weights differ in the 20th digit, and so do the shares."""
    queues = [("a", "1.00000000000000000001"), ("b", "1")]
    listed = ", ".join(f'{{"name": "{name}", "weight": {weight}, "request": {10**30}}}' for name, weight in queues)
    (found,) = shares(f'{{"total": {2 * 10**25}, "queues": [{listed}]}}')
    exact = Fraction("1.00000000000000000001")
    assert found["a"] == round(2 * 10**25 * exact / (exact + 1))
    assert found["a"] > found["b"]


def test_q03_lab_fairness_agrees_with_the_definition_on_random_trees() -> None:
    made = [trees.tree(random.Random(number)) for number in range(50)]
    for _, queues in made:  # decimal weights: those that JSON can write
        queues[:] = [msgspec.structs.replace(each, weight=int(each.weight)) for each in queues]
    text = json.dumps([{"total": total, "queues": msgspec.to_builtins(queues)} for total, queues in made])
    assert shares(text) == [oracle.fair_shares(total, queues) for total, queues in made]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (case_with(weight=-1), "queues.a.weight: -1: must be a number of at least 0"),
        (case_with(weight=-0.5), "queues.a.weight: -0.5: must"),
        (case_with(weight="1"), "queues.a.weight: '1': must"),
        (case_with(weight=True), "queues.a.weight: True: must"),
        (case_with(weight=None), "queues.a.weight: None: must"),
        (case_with(weight=float("nan")), "queues.a.weight: NaN: must"),
        (case_with(weight=float("inf")), "queues.a.weight: Infinity: must"),
        ('{"total": 1, "queues": [{"name": "a", "weight": 1e999999999999}]}', "queues.a.weight: 1e999999999999: must"),
        ('{"total": 1, "queues": [{"name": "a", "weight": 1e-1001}]}', "queues.a.weight: 1e-1001: must"),
        (f'{{"total": 1, "queues": [{{"name": "a", "weight": {"9" * 5000}}}]}}', "queues.a.weight: 9999"),
        (case_with(quota=-2), "queues.a.quota: -2: must be an integer of at least 0"),
        (case_with(quota=1.5), "queues.a.quota: 1.5: must be an integer"),
        (case_with(limit=2.0), "queues.a.limit: 2.0: must be an integer"),
        (case_with(limit=float("-inf")), "queues.a.limit: -Infinity: must be an integer"),
        (case_with(limit="5"), "queues.a.limit: '5': must be an integer"),
        (case_with(request=-1), "queues.a.request: -1: must be an integer of at least 0"),
        (case_with(request=[1]), "queues.a.request: [1]: must be an integer"),
        (case_with(priority=1.5), "queues.a.priority: 1.5: must be an integer"),
        (case_with(created=5), "queues.a.created: 5: must be a time"),
        (case_with(parent=5), "queues.a.parent: 5: must be the name"),
        (case_with(parent="x"), "queues.a.parent: 'x': does not exist"),
        (case_with(parent="a"), "queues.a.parent: 'a': is a cycle (a -> a)"),
        (case_with(wieght=1), "queues.a.wieght: 1: is not a key here; keys are name, parent, quota"),
        (case_with(name=""), "queues[0].name: '': must be the name"),
        (case_with(name="a\n"), "queues[0].name: 'a\\n': must be the name"),
        ('{"total": 1, "queues": [{}]}', "queues[0].name: None: must be the name"),
        ('{"total": 1, "queues": [5]}', "queues[0]: 5: must be an object"),
        ('{"total": 1, "queues": {}}', "queues: {}: must be a list"),
        ('{"total": 1, "queues": [{"name": "a"}, {"name": "a"}]}', "queues.a.name: 'a': is the name of two queues"),
        ('{"total": 1, "queues": [{"name": "a", "quota": 1, "quota": 2}]}', "quota: 2: is given twice"),
        ('{"queues": []}', "total: None: is missing"),
        ('{"total": -1, "queues": []}', "total: -1: must be an integer of at least 0"),
        ('{"total": 1e3, "queues": []}', "total: 1e3: must be an integer"),
        ('{"total": 1, "unit": "milli"}', "unit: 'milli': is not a key here; keys are total, queues"),
        ("[]", "has no case"),
        ("", "case: None: must be an object"),
        ("text", "case: 'text': must be an object"),
        ("{", "FILE: '-': is not JSON"),
        ("total: [", "FILE: '-': is not YAML"),
        ("total: 1\ntotal: 2", "'total' is given twice"),
        ("total: .nan", "total: .nan: must be an integer"),
        ("[" * 100_000, "FILE: '-': is nested too deeply"),
    ],
)
def test_q03_bad_cases_are_refused_with_field_value_and_fix(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"total": 1, "queues": [{"name": "a", "weight": -1}]}, "cases[1].queues.a.weight: -1: must"),
        ({"total": 1, "queues": [{"name": "a", "parent": "x"}]}, "cases[1].queues.a.parent: 'x': does not exist"),
        ({"queues": []}, "cases[1].total: None: is missing"),
        (5, "cases[1]: 5: must be an object"),
    ],
)
def test_q03_a_bad_case_of_several_is_named_by_its_index(wrong: Any, said: str) -> None:
    assert said in refusal(json.dumps([TWO_QUEUES, wrong]))


def test_q03_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for path, said in ((tmp_path / "none", "No such file"), (tmp_path, "directory"), (tmp_path / "binary", "UTF-8")):
        done = RUNNER.invoke(app, ["fairness", str(path)])
        assert done.exit_code == 2
        assert said in done.stderr


def test_q03_input_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_BYTES", 1000)
    assert "too large" in refusal("[" + " " * 1000)
    assert RUNNER.invoke(app, ["fairness", "/dev/zero"]).exit_code == 2
