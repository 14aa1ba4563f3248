"""Which contract rule was seen to hold where: a pytest plugin that keeps the outcome of every test that cites one.

A test cites a rule by its name (`test_s06_...`, `test_d01_d03_...`). Outcomes go to `.cache/rules.json`, one entry a
test, so that a run of a part refreshes that part only; `make rules` prints the table.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

REPORT = Path(__file__).parent.parent / ".cache" / "rules.json"
CITATION = re.compile(r"(?<=_)([dsmgqfxr]\d\d)(?=_|$|\[)")

_outcomes: dict[str, dict[str, object]] = {}


def cited_rules(test_name: str) -> list[str]:
    return sorted({rule.upper() for rule in CITATION.findall(test_name.split("[", maxsplit=1)[0])})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.rsplit("::", 1)[-1]
    rules = cited_rules(name)
    if not rules or (report.when != "call" and report.passed):
        return
    ground = "real" if "real" in report.keywords or "[real" in name or "-real" in name else "embedded"
    _outcomes[report.nodeid] = {"rules": rules, "ground": ground, "outcome": report.outcome}


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not _outcomes or session.config.option.collectonly:
        return
    known = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(known | _outcomes, indent=1, sort_keys=True))
