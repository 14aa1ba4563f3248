"""Tests that need kubectl or the real cluster and did not run, counted in one line that says how to get them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

REMEDY = "run `make real`"


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if REMEDY in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests need kubectl or the real cluster and did not run: {REMEDY}")
