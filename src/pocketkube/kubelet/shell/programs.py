"""The programs that simulated containers know."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from pocketkube.clock import Clock, stamp
from pocketkube.kubelet.shell.streams import Files, Streams

FOREVER = 10 * 365 * 86_400.0
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "r": "\r", "a": "", "e": "\x1b"}


@dataclass
class Call:
    """One call of a program."""

    args: list[str]
    env: dict[str, str]
    streams: Streams
    files: Files
    clock: Clock
    hostname: str

    def out(self, text: str) -> None:
        self.streams.out(text)

    def flags(self) -> set[str]:
        """The letters of all short options."""
        return {letter for arg in self.args if re.fullmatch(r"-[A-Za-z]+", arg) for letter in arg[1:]}

    def words(self) -> list[str]:
        return [arg for arg in self.args if not re.fullmatch(r"-[A-Za-z]+", arg)]

    async def lines(self, names: list[str]) -> list[str]:
        """The lines of files, or of the standard input if none is named."""
        if not names:
            return [line async for line in self.streams.stdin.lines()]
        return [line for name in names for line in self.files.read(name).splitlines()]


class Program(Protocol):
    def __call__(self, call: Call, /) -> Awaitable[int]: ...


def seconds(text: str) -> float | None:
    """The length of `5`, `1.5m`, `infinity`; None if it is none."""
    if text in ("infinity", "inf"):
        return FOREVER
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _UNITS[match[2]] if match else None


async def _sleep(call: Call) -> int:
    lengths = [seconds(word) for word in call.args]
    known = [length for length in lengths if length is not None]
    if not lengths or len(known) < len(lengths):
        call.streams.err(f"sleep: invalid time interval '{' '.join(call.args)}'\n")
        return 1
    await call.clock.sleep(sum(known))
    return 0


async def _echo(call: Call) -> int:
    words = list(call.args)
    newline, escapes = True, False
    while words and re.fullmatch(r"-[neE]+", words[0]):
        option = words.pop(0)
        newline = newline and "n" not in option
        escapes = escapes or "e" in option
    text = " ".join(words)
    call.out((_unescaped(text) if escapes else text) + ("\n" if newline else ""))
    return 0


async def _printf(call: Call) -> int:
    if not call.args:
        return 1
    values = iter(call.args[1:])
    call.out(re.sub(r"%[sd%]", lambda m: "%" if m[0] == "%%" else next(values, ""), _unescaped(call.args[0])))
    return 0


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), text)


async def _env(call: Call) -> int:
    for name, value in call.env.items():
        if not name.isdigit():
            call.out(f"{name}={value}\n")
    return 0


async def _printenv(call: Call) -> int:
    if not call.args:
        return await _env(call)
    missing = 0
    for name in call.args:
        if name in call.env:
            call.out(call.env[name] + "\n")
        else:
            missing = 1
    return missing


async def _true(call: Call) -> int:
    del call
    return 0


async def _false(call: Call) -> int:
    del call
    return 1


async def _cat(call: Call) -> int:
    words = call.words()
    if not words:
        async for line in call.streams.stdin.lines():
            call.out(line + "\n")
        return 0
    for name in words:
        try:
            call.out(call.files.read(name))
        except OSError as error:
            call.streams.err(f"cat: {name}: {error.strerror}\n")
            return 1
    return 0


async def _grep(call: Call) -> int:
    flags, words = call.flags(), call.words()
    if not words:
        return 2
    pattern = re.escape(words[0]) if "F" in flags else words[0].replace("\\|", "|")
    wanted = re.compile(pattern, re.IGNORECASE if "i" in flags else 0)
    found = 0
    if words[1:]:
        for line in await call.lines(words[1:]):
            found += _matched(call, line, wanted, flags)
    else:
        async for line in call.streams.stdin.lines():
            found += _matched(call, line, wanted, flags)
    if "c" in flags:
        call.out(f"{found}\n")
    return 0 if found else 1


def _matched(call: Call, line: str, wanted: re.Pattern[str], flags: set[str]) -> int:
    if bool(wanted.search(line)) == ("v" in flags):
        return 0
    if not flags & {"q", "c"}:
        call.out(line + "\n")
    return 1


def _count_option(call: Call, default: int) -> tuple[int, list[str]]:
    """`-n 5`, `-n5` and `-5` of head and tail, and the remaining words."""
    words: list[str] = []
    count = default
    args = iter(call.args)
    for arg in args:
        if arg == "-n":
            count = int(next(args, str(default)))
        elif re.fullmatch(r"-n?\d+", arg):
            count = int(arg.lstrip("-n"))
        elif not arg.startswith("-"):
            words.append(arg)
    return count, words


async def _head(call: Call) -> int:
    count, words = _count_option(call, 10)
    for line in (await call.lines(words))[:count]:
        call.out(line + "\n")
    return 0


async def _tail(call: Call) -> int:
    count, words = _count_option(call, 10)
    if words == ["/dev/null"] or (call.flags() & {"f", "F"} and words):
        await call.clock.sleep(FOREVER)
    for line in (await call.lines(words))[-count:]:
        call.out(line + "\n")
    return 0


async def _sort(call: Call) -> int:
    for line in sorted(await call.lines(call.words()), reverse="r" in call.flags()):
        call.out(line + "\n")
    return 0


async def _wc(call: Call) -> int:
    lines = await call.lines(call.words())
    flags = call.flags()
    counts = {"l": len(lines), "w": sum(len(line.split()) for line in lines), "c": sum(len(line) + 1 for line in lines)}
    call.out(" ".join(str(counts[flag]) for flag in "lwc" if flag in flags or not flags) + "\n")
    return 0


async def _seq(call: Call) -> int:
    numbers = [int(word) for word in call.args if word.lstrip("-").isdigit()]
    if not numbers:
        return 1
    first, last = (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
    for number in range(first, last + 1):
        call.out(f"{number}\n")
    return 0


async def _date(call: Call) -> int:
    now = call.clock.now()
    call.out(f"{int(now)}\n" if "+%s" in call.args else stamp(now) + "\n")
    return 0


async def _hostname(call: Call) -> int:
    call.out(call.hostname + "\n")
    return 0


async def _touch(call: Call) -> int:
    for name in call.words():
        call.files.write(name, "", append=True)
    return 0


async def _rm(call: Call) -> int:
    for name in call.words():
        call.files.path(name).unlink(missing_ok=True)
    return 0


async def _mkdir(call: Call) -> int:
    for name in call.words():
        call.files.path(name).mkdir(parents=True, exist_ok=True)
    return 0


async def _ls(call: Call) -> int:
    for name in call.words() or ["/"]:
        target = call.files.path(name)
        if not target.exists():
            call.streams.err(f"ls: {name}: No such file or directory\n")
            return 1
        for entry in sorted(target.iterdir()) if target.is_dir() else [target]:
            if not entry.name.startswith("."):
                call.out(entry.name + "\n")
    return 0


async def _test(call: Call) -> int:
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
    "sleep": _sleep,
    "echo": _echo,
    "printf": _printf,
    "env": _env,
    "printenv": _printenv,
    "true": _true,
    ":": _true,
    "false": _false,
    "cat": _cat,
    "grep": _grep,
    "head": _head,
    "tail": _tail,
    "sort": _sort,
    "wc": _wc,
    "seq": _seq,
    "date": _date,
    "hostname": _hostname,
    "touch": _touch,
    "rm": _rm,
    "mkdir": _mkdir,
    "ls": _ls,
    "test": _test,
    "[": _test,
}
