"""The ```console blocks of a Markdown page: its commands, and what it shows of their output.

In the output that a page shows, `...` stands for any text, or for any lines where a line has nothing else. Columns may
be wider or narrower than shown. A command with no output below it must succeed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.environments import waiting
from tests.story.terminal import Terminal

READS = ("kubectl get ", "kubectl logs ", "kubectl describe ", "apportion why ")
KEPT = ("cd ", "export ")


@dataclass(frozen=True)
class Step:
    command: str
    shown: str

    @property
    def patience(self) -> float:
        """Seconds: a command that changes something runs once."""
        return 60 if self.command.startswith(READS) else 0

    def matches(self, output: str) -> bool:
        return not self.shown or re.fullmatch(_pattern(self.shown), _even(output)) is not None


def read(page: Path) -> Iterator[Step]:
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield Step(command, shown)


class Session:
    """A terminal whose folder and variables last from command to command."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._kept: list[str] = []

    def run(self, step: Step) -> str:
        """The output, which is as shown; a command that only reads is repeated until it is."""
        output = ""

        def as_shown() -> bool:
            nonlocal output
            output = self._terminal.run("\n".join([*self._kept, step.command]))
            return step.matches(output)

        try:
            waiting.until(as_shown, f"`{step.command}` prints:\n{step.shown}", within=step.patience, pause=0.3)
        except waiting.NeverHappenedError as error:
            error.add_note(output)
            raise
        if step.command.startswith(KEPT):
            self._kept.append(step.command)
        return output


def _pattern(shown: str) -> str:
    lines = (
        r"(.*\n)*" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n"
        for line in _even(shown).splitlines()
    )
    return "".join(lines)


def _even(text: str) -> str:
    return "".join(f"{re.sub(' +', ' ', line).rstrip()}\n" for line in text.splitlines())
