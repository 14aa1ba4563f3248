"""Programs that read and write text: none holds more of it than it needs.

Patterns are matched by RE2, whose time is linear in the text for every pattern.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import re2

from pocketkube.kubelet.shell.durations import FOREVER
from pocketkube.kubelet.shell.limits import MIB
from pocketkube.kubelet.shell.programs import Call, Program
from pocketkube.kubelet.shell.streams import CHUNK

_PATTERN_MEMORY = MIB
_MATCHING, _SORTING = 8, 50  # times slower than moving text
_PER_LINE = 64  # bytes of a line in memory besides its text


async def cat(call: Call) -> int:
    words = call.words()
    if not words:
        async for chunk in call.chunks([]):
            await call.out(chunk)
    for name in words:
        try:
            async for chunk in call.files.chunks(name):
                await call.out(chunk)
        except OSError as error:
            await call.err(f"cat: {name}: {error.strerror}\n")
            return 1
    return 0


async def grep(call: Call) -> int:
    flags, words = call.flags(), call.words()
    if not words:
        return 2
    try:
        wanted = _pattern(words[0], flags)
    except re2.error as error:
        await call.err(f"grep: {error}\n")
        return 2
    found = 0
    async for line in call.lines(words[1:]):
        await call.allowance.step(_MATCHING * len(line))
        if bool(wanted.search(line)) == ("v" in flags):
            continue
        found += 1
        if not flags & {"q", "c"}:
            await call.out(line + "\n")
    if "c" in flags:
        await call.out(f"{found}\n")
    return 0 if found else 1


def _pattern(text: str, flags: set[str]) -> Any:
    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY
    options.log_errors = False
    options.case_sensitive = "i" not in flags
    return re2.compile(re2.escape(text) if "F" in flags else text.replace("\\|", "|"), options)


async def head(call: Call) -> int:
    count, words = _count_option(call, 10)
    left = count
    if left > 0:
        async for line in call.lines(words):
            await call.out(line + "\n")
            left -= 1
            if left <= 0:
                break
    return 0


async def tail(call: Call) -> int:
    count, words = _count_option(call, 10)
    if words == ["/dev/null"] or (call.flags() & {"f", "F"} and words):
        await call.clock.sleep(FOREVER)
    kept: deque[str] = deque()
    with call.allowance.holding() as hold:
        async for line in call.lines(words):
            kept.append(line)
            hold(len(line) + _PER_LINE)
            if len(kept) > count:
                hold(-len(kept.popleft()) - _PER_LINE)
        for line in kept:
            await call.out(line + "\n")
    return 0


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
    return max(count, 0), words


async def sort(call: Call) -> int:
    with call.allowance.holding() as hold:
        kept: list[str] = []
        async for line in call.lines(call.words()):
            hold(len(line) + _PER_LINE)
            kept.append(line)
        await call.allowance.step(_SORTING * len(kept))
        for line in sorted(kept, reverse="r" in call.flags()):
            await call.out(line + "\n")
    return 0


async def wc(call: Call) -> int:
    flags = call.flags()
    counts = {"l": 0, "w": 0, "c": 0}
    async for line in call.lines(call.words()):
        counts["l"] += 1
        counts["w"] += sum(1 for _ in re.finditer(r"\S+", line))
        counts["c"] += len(line) + 1
    await call.out(" ".join(str(counts[flag]) for flag in "lwc" if flag in flags or not flags) + "\n")
    return 0


async def seq(call: Call) -> int:
    numbers = [int(word) for word in call.args if word.lstrip("-").isdigit()]
    if not numbers:
        return 1
    first, last = (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
    text = ""
    for number in range(first, last + 1):
        text += f"{number}\n"
        if len(text) >= CHUNK:
            await call.out(text)
            text = ""
    if text:
        await call.out(text)
    return 0


async def yes(call: Call) -> int:
    line = (" ".join(call.args) or "y") + "\n"
    while True:
        await call.out(line * max(1, CHUNK // len(line)))


TABLE: dict[str, Program] = {
    "cat": cat,
    "grep": grep,
    "head": head,
    "tail": tail,
    "sort": sort,
    "wc": wc,
    "seq": seq,
    "yes": yes,
}
