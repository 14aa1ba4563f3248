"""The scenario runner itself: a wrong expectation is found, and what it cannot read or do is said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from typer.testing import CliRunner, Result

from apportion.cli.lab import app
from apportion.lab.scenarios import files, running, schema

CLUSTER = """
nodes:
  n0: {gpus: 2, mig: false, taints: ["gpu:PreferNoSchedule"]}
  n1: {gpus: 2, mig: true}
jobs:
  - {name: old, gpus: 1, on: n0, device: 1}
  - {name: new, gpus: 1}
  - {name: sliced, mig: {3g.20gb: 1}, on: n1, start: 4, bare: true}
  - {name: more, mig: {3g.20gb: 1}, bare: true}
  - {name: third, gpus: 1}
  - {name: gang, pods: 2, mig: {4g.20gb: 1}}
"""
RIGHT = {
    "running": ["old", "new", "sliced", "more"],
    "pending": ["third", "gang"],
    "where": {"new": "n0", "more": "n1"},
    "notWhere": {"new": "n1"},
    "device": {"new": 0, "more": 0},
    "start": {"sliced": 4, "more": 0},
    "together": [["sliced", "more"]],
    "apart": [["old", "new"]],
    "uses": {"n0": ["whole", "whole"], "n1": ["sliced", "free"]},
    "reason": {"third": "NoFreeGpu", "gang": {"n0": "NoSuchProfile", "n1": "NoFreePlace"}},
    "layer": {"third": "placement"},
    "message": {"third": "too few free GPUs"},
    "evictions": 0,
}
WRONG: list[dict[str, Any]] = [
    {"running": ["third"]},
    {"running": ["old", "gang"]},
    {"running": ["gang-1"]},
    {"pending": ["new"]},
    {"pending": ["old"]},
    {"where": {"new": "n1"}},
    {"where": {"third": "n0"}},
    {"notWhere": {"new": "n0"}},
    {"notWhere": {"third": "n0"}},
    {"device": {"new": 1}},
    {"device": {"third": 0}},
    {"start": {"more": 4}},
    {"start": {"third": 0}},
    {"together": [["old", "new"]]},
    {"together": [["old", "third"]]},
    {"apart": [["sliced", "more"]]},
    {"apart": [["old", "third"]]},
    {"uses": {"n1": ["free", "sliced"]}},
    {"reason": {"third": "NoFreePlace"}},
    {"reason": {"new": "NoFreeGpu"}},
    {"reason": {"gang": {"n0": "NoFreePlace"}}},
    {"layer": {"third": "memory"}},
    {"layer": {"new": "placement"}},
    {"message": {"third": "no nodes"}},
    {"message": {"new": "too few free GPUs"}},
]


def problems(text: str) -> tuple[str, ...]:
    (entry,) = files.read(text)
    return running.run_entry(entry).problems


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"name: one\n{CLUSTER}expect: {json.dumps(RIGHT)}\n")
    return str(path)


def test_what_is_as_expected_is_ok(cluster: str) -> None:
    assert problems(cluster) == ()


@pytest.mark.parametrize("expect", WRONG, ids=str)
def test_a_wrong_expectation_is_found(tmp_path: Path, expect: dict[str, Any]) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(f"name: wrong\n{CLUSTER}expect: {json.dumps(expect)}\n")
    (problem,) = problems(str(path))
    assert problem.startswith(("the ", *expect_names(expect)))


def expect_names(expect: dict[str, Any]) -> list[str]:
    ((_, value),) = expect.items()
    first = next(iter(value))
    return [*(first if isinstance(first, list) else [first]), "gang"]


def test_problems_say_what_came_instead(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(f"name: wrong\n{CLUSTER}expect: {{where: {{new: n1}}, running: [third]}}\n")
    first, second = problems(str(path))
    assert first.startswith("third should be running but is pending: 0/2 nodes are available for 1 x nvidia.com/gpu")
    assert second == "new should be on n1 but is on n0"


MISTAKES = [
    ("nodes.n0.gpuz", {"nodes": {"n0": {"gpuz": 1}}}, "1: is not a key of this form; keys are count, gpus,"),
    ("nodes.n0.gpus", {"nodes": {"n0": {"gpus": -1}}}, "-1: expected int >= 0"),
    ("nodes.n0.gpus", {"nodes": {"n0": {"gpus": "two"}}}, "'two': expected int | array, got str"),
    ("nodes.n0.model", {"nodes": {"n0": {"gpus": 1, "model": "Voodoo"}}}, "'Voodoo': no such GPU model is known"),
    ("nodes.n0.mig", {"nodes": {"n0": {"gpus": 1, "model": "Tesla T4", "mig": True}}}, "has no MIG profiles"),
    ("nodes.n0.taints", {"nodes": {"n0": {"taints": ["gpu"]}}}, "'gpu': must look like key=value:NoSchedule"),
    ("nodes.n0.capacity.cpu", {"nodes": {"n0": {"cpu": "many"}}}, "'many'"),
    ("nodes.n0.foreign[0]", {"nodes": {"n0": {"foreign": [{"size": 1}]}}}, "needs start"),
    ("nodes.n", {"nodes": {"n-0": {}, "n": {"count": 1}}}, "'n-0': is the name of two nodes"),
    ("nodes", {"nodes": ["n0"]}, "must map node names to nodes"),
    ("jobs", {"jobs": {}}, "must be a list of jobs"),
    ("jobs[0]", {"jobs": [{"gpus": 1}]}, "needs name"),
    ("jobs.x.on", {"jobs": [{"name": "x", "on": "n9"}]}, "'n9': must be one of the nodes n0"),
    ("jobs.x.on", {"jobs": [{"name": "x", "pods": 2, "on": ["n0"]}]}, "a node for each of the 2 pods"),
    ("jobs.x.on", {"jobs": [{"name": "x", "gpus": 2, "on": "n0"}]}, "'n0': has no 2 free GPUs"),
    ("jobs.x.device", {"jobs": [{"name": "x", "gpus": 1, "on": "n0", "device": 3}]}, "3: node n0 has 1 GPUs"),
    ("jobs.x.device", {"jobs": [{"name": "x", "gpus": 1, "device": 0}]}, "0: needs on"),
    ("jobs.x.start", {"jobs": [{"name": "x", "mig": {"3g.20gb": 1}, "on": "n0", "start": 1}]}, "has no free place"),
    ("jobs.x.name", {"jobs": [{"name": "x"}, {"name": "x"}]}, "'x': is the name of two jobs or pods"),
    ("jobs.x.policy", {"jobs": [{"name": "x", "policy": "luck"}]}, "'luck': must be one of fragmentation"),
    ("jobs.x.nodeAffinity", {"jobs": [{"name": "x", "nodeAffinity": ["a b"]}]}, "'a b': must look like"),
    ("jobs.x.anyOrder", {"jobs": [{"name": "x", "anyOrder": True}]}, "needs a pending job with mig as a list"),
    (
        "jobs.x: metadata.annotations[gpu-fraction]",
        {"jobs": [{"name": "x", "fraction": "2"}]},
        "'2': must be a decimal",
    ),
    ("nodes.n0.mig", {"jobs": [{"name": "x", "gpus": 1}, {"name": "y", "mig": {"1g.5gb": 1}}]}, "say mig: true or"),
    ("jobs.x.queue", {"jobs": [{"name": "x", "queue": "a"}]}, "'a': must be one of the queues"),
    ("jobs.x.min", {"jobs": [{"name": "x", "min": 2}]}, "2: must not be more than the number of pods, 1"),
    ("queues.a.parent", {"queues": {"a": {"parent": "b"}}}, "'b': must be one of the queues a"),
    ("queues.a.weight", {"queues": {"a": {"weight": -1}}}, "-1: "),
    ("expect.shares", {"expect": {"shares": {"a": 1}}}, "'a': must be one of the queues"),
    ("expect.partly", {"expect": {"partly": {"y": {"running": 1, "pending": 0}}}}, "'y': must be a job"),
    ("policy", {"policy": "luck"}, "'luck': must be one of fragmentation"),
    ("expect.running", {"expect": {"running": ["z"]}}, "'z': must be a job or a pod of a job: x"),
    ("expect.where", {"expect": {"where": {"x": "n9"}}}, "'n9': must be one of the nodes n0"),
    ("expect", {"expect": {}}, "{}: says nothing"),
    ("expect.together[0]", {"expect": {"together": [[]]}}, "[]: must name jobs"),
    ("expect.apart[1]", {"expect": {"apart": [["x"], []]}}, "[]: must name jobs"),
    ("nodes.\\ud800", {"nodes": {"\ud800": {}}}, "'\\ud800': is not Unicode text"),
    ("jobs[0].labels.a", {"jobs": [{"name": "x", "labels": {"a": "\udcff"}}]}, "'\\udcff': is not Unicode text"),
    ("expect.runs", {"expect": {"runs": ["x"]}}, "is not a key of this form; keys are running,"),
    ("colour", {"colour": "red"}, "'red': is not a key of this form; keys are name, policy,"),
]


@pytest.mark.parametrize(("field", "change", "said"), MISTAKES, ids=[f"{field} {said}" for field, _, said in MISTAKES])
def test_mistakes_are_named_with_file_field_value_and_fix(
    tmp_path: Path, field: str, change: dict[str, Any], said: str
) -> None:
    body = {"name": "bad", "nodes": {"n0": {"gpus": 1}}, "jobs": [{"name": "x"}], "expect": {"running": ["x"]}}
    path = tmp_path / "bad.yaml"
    path.write_text(json.dumps(body | change))
    (problem,) = problems(str(path))
    assert problem.startswith(f"{path}: scenario 1 (bad): {field}: ")
    assert said in problem


def test_one_file_may_hold_documents_and_lists(tmp_path: Path) -> None:
    one = "{name: %s, nodes: {n0: {gpus: 1}}, jobs: [{name: x, gpus: 1}], expect: {running: [x]}}"
    path = tmp_path / "many.yaml"
    path.write_text(f"{one % 'a'}\n---\n- {one % 'b'}\n- {one % 'c'}\n---\n- 7\n")
    results = running.run_files([str(path)])
    assert [(each.name, each.ok) for each in results] == [
        ("a", True),
        ("b", True),
        ("c", True),
        (f"{path} scenario 4", False),
    ]
    assert "7: must be a mapping" in results[3].problems[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [", "is not YAML"),
        (b"\xff\xfe\x00", "is not"),
        (b"", "has no scenario"),
        (b"a: 1\na: 2", "'a' is given twice"),
        (b"{a: 1}: 2", "a key must be a word"),
        (b"a: 2026-13-45", "is not YAML"),
    ],
)
def test_files_that_cannot_be_read_are_named_and_not_ok(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    (result,) = running.run_files([str(path)])
    assert not result.ok
    assert result.name == str(path)
    assert result.problems[0].startswith(f"{path}: ")
    assert said in result.problems[0]


def test_what_is_wrong_with_one_scenario_hides_no_other(tmp_path: Path) -> None:
    good = "{name: %s, nodes: {n0: {gpus: 1}}, jobs: [{name: x, gpus: 1}], expect: {running: [x]}}"
    path = tmp_path / "many.yaml"
    listed = ("{twice: 1, twice: 2}", "&c {name: c, nodes: *c}", good % "d")
    documents = (good % "a", "x: [", "\n".join(f"- {each}" for each in listed), good % "e")
    path.write_text("\n---\n".join(documents))
    results = running.run_files([str(path)])
    assert [each.name for each in results if each.ok] == ["a", "d", "e"]
    syntax, twice, cycle = (each.problems[0] for each in results if not each.ok)
    assert syntax.startswith(f"{path}: scenario 2: is not YAML: ")
    assert "line 4" in syntax
    assert twice.startswith(f"{path}: scenario 3: is not YAML: 'twice' is given twice")
    assert "line 5" in twice
    assert cycle.startswith(f"{path}: scenario 4 (c): nodes")


def test_names_that_are_no_text_are_shown_escaped(tmp_path: Path) -> None:
    path = os.fsdecode(bytes(tmp_path) + b"/bad-\xff.yaml")
    Path(path).write_text('{name: "\\ud800", nodes: {}, jobs: [], expect: {running: [x]}}')
    for arguments in ((path, "-o", "json"), (path,), (f"{path}-missing", "-o", "json")):
        found = run(*arguments)
        assert found.exit_code == 1
        assert isinstance(found.exception, SystemExit), "no traceback"
        if "json" in arguments:
            (entry,) = json.loads(found.stdout)["scenarios"]
            assert "bad-\\udcff.yaml" in entry["problems"][0]


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["scenario", *arguments], input=stdin)


def test_the_command_prints_json_and_ends_with_1_unless_all_are_ok(cluster: str, tmp_path: Path) -> None:
    good = run(cluster, "-o", "json")
    assert good.exit_code == 0
    assert json.loads(good.stdout) == {"scenarios": [{"name": "one", "ok": True, "problems": []}]}
    missing = str(tmp_path / "missing.yaml")
    bad = run(missing, cluster, "-o", "json")
    assert bad.exit_code == 1
    problem = f"{missing}: cannot be read: No such file or directory"
    assert json.loads(bad.stdout)["scenarios"] == [
        {"name": missing, "ok": False, "problems": [problem]},
        {"name": "one", "ok": True, "problems": []},
    ]


def test_the_command_prints_a_table_and_reads_standard_input(cluster: str) -> None:
    text = Path(cluster).read_text()
    good = run("-", stdin=text)
    assert good.exit_code == 0
    assert "1 of 1 scenarios are ok" in good.stdout
    bad = run("-", stdin=text.replace('"where": {"new": "n0"', '"where": {"new": "n1"'))
    assert bad.exit_code == 1
    assert "new should be on n1 but is on n0" in bad.stdout
    assert "0 of 1 scenarios are ok" in bad.stdout


DOCUMENT = Path(__file__).parents[2] / "docs" / "scenarios.md"


def test_the_documented_example_holds(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(DOCUMENT.read_text().split("```yaml\n")[1].split("```")[0])
    assert problems(str(path)) == ()


@pytest.mark.parametrize("part", [schema.Scenario, schema.ScenarioNode, schema.Job, schema.Expect])
def test_every_key_is_documented(part: type[schema.ScenarioPart]) -> None:
    text = DOCUMENT.read_text()
    assert [key.encode_name for key in structs.fields(part) if f"`{key.encode_name}`" not in text] == []
