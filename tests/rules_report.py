"""Which contract rule was seen to hold where: a pytest plugin that keeps the outcome of every test that cites one.

A test cites a rule by its name (`test_s06_...`, `test_d01_d03_...`), a scenario too (`s04 seven of ...`). Outcomes
go to `.cache/rule-outcomes.json`, one entry a test, so that a run of a part refreshes that part only; tests that a
file no longer has are forgotten, and so are files that no longer exist. `make rules` prints the table.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parent.parent
REPORT = ROOT / ".cache" / "rule-outcomes.json"
CITATION = re.compile(r"(?<=_)([dsmgqfxrt]\d\d)(?=_|$|\[)")
SCENARIO = re.compile(r"test_scenario\[((?:[dsmgqfxrt]\d\d )+)")

_outcomes: dict[str, dict[str, object]] = {}
_collected: set[str] = set()


def cited_rules(test_name: str) -> list[str]:
    if scenario := SCENARIO.match(test_name):
        return sorted(scenario[1].upper().split())
    return sorted({rule.upper() for rule in CITATION.findall(test_name.split("[", maxsplit=1)[0])})


def pytest_itemcollected(item: pytest.Item) -> None:
    _collected.add(item.nodeid)


def pytest_xdist_node_collection_finished(ids: list[str]) -> None:
    _collected.update(ids)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.rsplit("::", 1)[-1]
    rules = cited_rules(name)
    if not rules or (report.when != "call" and report.passed):
        return
    cluster = "real" if "real" in report.keywords or "[real" in name or "-real" in name else "embedded"
    _outcomes[report.nodeid] = {"rules": rules, "cluster": cluster, "outcome": report.outcome}


def pytest_sessionfinish(session: pytest.Session) -> None:
    shared = hasattr(session.config, "workerinput")  # the process that shares out the tests hears of all
    if shared or not _outcomes or session.config.option.collectonly:
        return
    known = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    known = {test: outcome for test, outcome in known.items() if (ROOT / _file(test)).exists()}
    whole_files = not getattr(session.config.option, "lf", False) and not any(
        "::" in argument for argument in session.config.args
    )
    if whole_files:
        files = {_file(test) for test in _collected}
        known = {test: outcome for test, outcome in known.items() if test in _collected or _file(test) not in files}
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(known | _outcomes, indent=1, sort_keys=True))


def _file(test: str) -> str:
    return test.split("::", maxsplit=1)[0]
