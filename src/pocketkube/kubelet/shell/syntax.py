"""The syntax tree of the shell."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Text:
    """Characters as they are; quoted ones are not split at spaces."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Variable:
    """`$X`, `${X}`, `${X:-default}`, `$?`."""

    name: str
    default: str | None = None
    quoted: bool = False


@dataclass(frozen=True)
class Output:
    """`$(command)`: what a command prints."""

    script: Script
    quoted: bool = False


@dataclass(frozen=True)
class Number:
    """`$((1 + x))`."""

    expression: str


Part = Text | Variable | Output | Number
Word = tuple[Part, ...]


@dataclass(frozen=True)
class Redirect:
    """`> file`, `>> file`, `< file`, `2> file`, `2>&1`."""

    stream: int
    mode: str  # ">", ">>", "<" or "&"
    target: Word


@dataclass
class Simple:
    """A program with its words. `final`: nothing of the script comes after it."""

    words: list[Word] = field(default_factory=list)
    assignments: list[tuple[str, Word]] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    final: bool = False


@dataclass
class Group:
    """`{ ...; }` or `( ... )`."""

    body: Script
    redirects: list[Redirect] = field(default_factory=list)


@dataclass
class While:
    condition: Script
    body: Script
    until: bool = False


@dataclass
class For:
    name: str
    words: list[Word]
    body: Script


@dataclass
class If:
    branches: list[tuple[Script, Script]]
    otherwise: Script | None


Command = Simple | Group | While | For | If


@dataclass
class Pipeline:
    commands: list[Command]
    negated: bool = False


@dataclass
class Chain:
    """Pipelines joined by `&&` and `||`; each but the first with the word before it."""

    first: Pipeline
    rest: list[tuple[str, Pipeline]] = field(default_factory=list)
    background: bool = False


@dataclass
class Script:
    chains: list[Chain] = field(default_factory=list)
