"""Print the table of contract rules: pass, fail, skipped or no test, on the embedded and on the real cluster."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
BEHAVIOUR = ROOT / "docs" / "behaviour.md"
REPORT = ROOT / ".cache" / "rule-outcomes.json"
RULE = re.compile(r"^\*\*([DSMGQFXRT]\d\d)\.(.*?)(?=^\*\*[DSMGQFXRT]\d\d\.|^## |\Z)", re.MULTILINE | re.DOTALL)
PLANNED_LETTER = re.compile(r"^All of ([DSMGQFXRT]) is \*planned\*", re.MULTILINE)
PLANNED_RULE = "(*Planned.*)"
WIDEST_TEXT = 60
COLOURS = {"pass": "green", "fail": "bold red", "skipped": "yellow", "no test": "dim", "planned": "dim"}


def main() -> int:
    if not REPORT.exists():
        print("no test results yet; run: make test", file=sys.stderr)
        return 2
    seen: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in json.loads(REPORT.read_text()).values():
        for rule in entry["rules"]:
            seen[rule, entry["cluster"]].append(entry["outcome"])
    table = Table("rule", "what it says", "embedded", "real", "tests", title="contract rules")
    failed = 0
    behaviour = BEHAVIOUR.read_text()
    planned_letters = set(PLANNED_LETTER.findall(behaviour))
    for rule, text in RULE.findall(behaviour):
        planned = rule[0] in planned_letters or PLANNED_RULE in text
        cells = {cluster: verdict(seen[rule, cluster], planned=planned) for cluster in ("embedded", "real")}
        failed += "fail" in cells.values()
        tests = len(seen[rule, "embedded"]) + len(seen[rule, "real"])
        painted = [f"[{COLOURS[cell]}]{cell}[/]" for cell in cells.values()]
        table.add_row(rule, shortened(text), *painted, str(tests))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 1 if failed else 0


def verdict(outcomes: list[str], *, planned: bool) -> str:
    if "failed" in outcomes:
        return "fail"
    if "passed" in outcomes:
        return "pass"
    if outcomes:
        return "skipped"
    return "planned" if planned else "no test"


def shortened(text: str) -> str:
    plain = " ".join(re.sub(r"[*`]", "", text).split())
    return plain if len(plain) <= WIDEST_TEXT else plain[: WIDEST_TEXT - 3] + "..."


if __name__ == "__main__":
    sys.exit(main())
