"""The programs that simulated containers know."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Protocol

from pocketkube.clock import stamp
from pocketkube.kubelet.shell import streams
from pocketkube.kubelet.shell.durations import FOREVER, seconds
from pocketkube.kubelet.shell.files import Files
from pocketkube.kubelet.shell.limits import Allowance
from pocketkube.kubelet.shell.streams import Streams

_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "r": "\r", "a": "", "e": "\x1b"}


class ShellClock(Protocol):
    """The cluster's time. It is kept in another process, so asking for it takes a while."""

    async def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


@dataclass
class Call:
    """One call of a program."""

    args: list[str]
    env: dict[str, str]
    streams: Streams
    files: Files
    clock: ShellClock
    hostname: str
    allowance: Allowance

    async def out(self, text: str) -> None:
        await self.allowance.step(len(text))
        await self.streams.out(text)

    async def err(self, text: str) -> None:
        await self.streams.err(text)

    def flags(self) -> set[str]:
        """The letters of all short options."""
        return {letter for arg in self.args if re.fullmatch(r"-[A-Za-z]+", arg) for letter in arg[1:]}

    def words(self) -> list[str]:
        return [arg for arg in self.args if not re.fullmatch(r"-[A-Za-z]+", arg)]

    async def chunks(self, names: list[str]) -> AsyncIterator[str]:
        """The text of files, or of the standard input if none is named."""
        if not names:
            async for chunk in self.streams.stdin.chunks():
                yield chunk
        for name in names:
            async for chunk in self.files.chunks(name):
                yield chunk

    def lines(self, names: list[str]) -> AsyncIterator[str]:
        return streams.lines(self.chunks(names), self.allowance)


class Program(Protocol):
    def __call__(self, call: Call, /) -> Awaitable[int]: ...


async def sleep(call: Call) -> int:
    lengths = [seconds(word) for word in call.args]
    known = [length for length in lengths if length is not None]
    if not lengths or len(known) < len(lengths):
        await call.err(f"sleep: invalid time interval '{' '.join(call.args)}'\n")
        return 1
    await call.clock.sleep(min(sum(known), FOREVER))
    return 0


async def echo(call: Call) -> int:
    words = list(call.args)
    newline, escapes = True, False
    while words and re.fullmatch(r"-[neE]+", words[0]):
        option = words.pop(0)
        newline = newline and "n" not in option
        escapes = escapes or "e" in option
    text = " ".join(words)
    await call.out((_unescaped(text) if escapes else text) + ("\n" if newline else ""))
    return 0


async def printf(call: Call) -> int:
    if not call.args:
        return 1
    values = iter(call.args[1:])
    with call.allowance.holding() as hold:

        def value(match: re.Match[str]) -> str:
            text = "%" if match[0] == "%%" else next(values, "")
            hold(len(text))
            return text

        await call.out(re.sub(r"%[sd%]", value, _unescaped(call.args[0])))
    return 0


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), text)


async def env(call: Call) -> int:
    for name, value in list(call.env.items()):
        if not name.isdigit():
            await call.out(f"{name}={value}\n")
    return 0


async def printenv(call: Call) -> int:
    if not call.args:
        return await env(call)
    missing = 0
    for name in call.args:
        if name in call.env:
            await call.out(call.env[name] + "\n")
        else:
            missing = 1
    return missing


async def true(call: Call) -> int:
    del call
    return 0


async def false(call: Call) -> int:
    del call
    return 1


async def date(call: Call) -> int:
    now = await call.clock.now()
    await call.out(f"{int(now)}\n" if "+%s" in call.args else stamp(now) + "\n")
    return 0


async def hostname(call: Call) -> int:
    await call.out(call.hostname + "\n")
    return 0


async def touch(call: Call) -> int:
    for name in call.words():
        await call.allowance.step()
        call.files.write(name, "", append=True)
    return 0


async def rm(call: Call) -> int:
    for name in call.words():
        await call.allowance.step()
        call.files.path(name).unlink(missing_ok=True)
    return 0


async def mkdir(call: Call) -> int:
    for name in call.words():
        await call.allowance.step()
        call.files.make_directory(call.files.path(name))
    return 0


async def ls(call: Call) -> int:
    for name in call.words() or ["/"]:
        target = call.files.path(name)
        if not target.exists():
            await call.err(f"ls: {name}: No such file or directory\n")
            return 1
        for entry in sorted(target.iterdir()) if target.is_dir() else [target]:
            if not entry.name.startswith("."):
                await call.out(entry.name + "\n")
    return 0


async def test(call: Call) -> int:
    words = [word for word in call.args if word != "]"]
    negated = words[:1] == ["!"]
    held = _holds(call, words[1:] if negated else words)
    return int(held == negated)


def _holds(call: Call, words: list[str]) -> bool:  # noqa: PLR0911  one return per operator
    match words:
        case ["-n", value] | [value]:
            return bool(value)
        case ["-z", *rest]:
            return not "".join(rest)
        case ["-f" | "-e" | "-r" | "-s", name]:
            return call.files.path(name).exists()
        case ["-d", name]:
            return call.files.path(name).is_dir()
        case [left, "=" | "==", right]:
            return left == right
        case [left, "!=", right]:
            return left != right
        case [left, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" as comparison, right]:
            return _compare(comparison, int(left or 0), int(right or 0))
    return False


def _compare(comparison: str, left: int, right: int) -> bool:
    order = (left > right) - (left < right)
    return order in {"-eq": (0,), "-ne": (-1, 1), "-lt": (-1,), "-le": (-1, 0), "-gt": (1,), "-ge": (0, 1)}[comparison]


TABLE: dict[str, Program] = {
    "sleep": sleep,
    "echo": echo,
    "printf": printf,
    "env": env,
    "printenv": printenv,
    "true": true,
    ":": true,
    "false": false,
    "date": date,
    "hostname": hostname,
    "touch": touch,
    "rm": rm,
    "mkdir": mkdir,
    "ls": ls,
    "test": test,
    "[": test,
}
