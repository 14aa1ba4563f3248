"""Results of scenarios for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from apportion.lab import reporting
from apportion.lab.scenarios.running import CheckedScenario


def as_json(results: Sequence[CheckedScenario]) -> str:
    listed = [{"name": each.name, "ok": each.ok, "problems": list(each.problems)} for each in results]
    return msgspec.json.format(msgspec.json.encode({"scenarios": listed}), indent=2).decode()


def show(results: Sequence[CheckedScenario]) -> None:
    """A line per scenario; problems stand below it."""
    table = Table(box=None, pad_edge=False)
    table.add_column("SCENARIO", overflow="fold")
    table.add_column("RESULT", no_wrap=True)
    for result in results:
        state = Text("ok", style="green") if result.ok else Text("not ok", style="red")
        table.add_row(Text(result.name), state)
        for problem in result.problems:
            table.add_row(Text(f"  {problem}"), "")
    reporting.show(table)
    failed = sum(not result.ok for result in results)
    Console(highlight=False).print(f"{len(results) - failed} of {len(results)} scenarios are ok")
