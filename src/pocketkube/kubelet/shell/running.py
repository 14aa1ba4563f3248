"""Runs a parsed script.

Unknown programs represent the real work of an image: in last place they run until the
container is stopped, anywhere else they succeed at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace

from pocketkube.kubelet.shell import arithmetic, durations, parsing, programs, text_programs
from pocketkube.kubelet.shell.files import Files
from pocketkube.kubelet.shell.limits import Allowance
from pocketkube.kubelet.shell.streams import Pipe, Streams, Write
from pocketkube.kubelet.shell.syntax import (
    Chain,
    Command,
    For,
    Group,
    If,
    Number,
    Output,
    Part,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Text,
    Variable,
    While,
    Word,
)
from pocketkube.kubelet.shell.words import Pieces

MISUSE, NOT_RUN = 2, 126
STDERR = 2
SHELLS = ("sh", "bash", "ash", "dash")
LONGEST_ARGUMENT, ALL_ARGUMENTS = 131_072, 2_097_152  # as in the kernel
_PER_VARIABLE, _PER_CHARACTER_OF_SCRIPT = 200, 40  # bytes
_PARSING = 50  # times slower than moving text
_depth: contextvars.ContextVar[int] = contextvars.ContextVar("depth", default=0)


class Exit(Exception):
    """Not an error: `exit N`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code & 0xFF


@dataclass
class Shell:
    """One running script with its variables."""

    env: dict[str, str]
    files: Files
    clock: programs.ShellClock
    forever: Callable[[], Awaitable[int]]
    allowance: Allowance
    hostname: str = "localhost"
    programs: Mapping[str, programs.Program] = field(default_factory=dict)  # besides those that every shell knows
    trap: str | None = None  # for SIGTERM
    status: int = 0
    stop_on_error: bool = False
    _background: list[asyncio.Task[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.allowance.hold(sum(_size(value) for value in self.env.values()))

    async def command(self, argv: list[str], streams: Streams, *, final: bool = True) -> int:
        """Run a program as a container's command is run: without a shell, unless it is one."""
        try:
            return await self._program(argv, streams, final=final)
        except Exit as end:
            return end.code
        finally:
            for task in self._background:
                task.cancel()

    async def text(self, text: str, streams: Streams) -> int:
        """Parse and run a script."""
        await self.allowance.step(_PARSING * len(text))
        try:
            script = parsing.parse(text)
        except parsing.ShellSyntaxError as error:
            await streams.err(f"sh: {error}\n")
            return MISUSE
        with self.allowance.holding() as hold:
            hold(len(text) * _PER_CHARACTER_OF_SCRIPT)
            return await self.script(script, streams)

    async def script(self, script: Script, streams: Streams) -> int:
        depth = _depth.get()
        if depth >= self.allowance.limits.depth:
            await streams.err("sh: maximum recursion depth reached\n")
            raise Exit(MISUSE)
        _depth.set(depth + 1)
        try:
            for chain in script.chains:
                if chain.background:
                    self._background = [task for task in self._background if not task.done()]
                    self._background.append(await self._task(self._in_background(chain, streams), streams))
                    self.status = 0
                else:
                    self.status = await self._chain(chain, streams)
        finally:
            _depth.set(depth)
        return self.status

    async def _task(self, work: Coroutine[None, None, int], streams: Streams) -> asyncio.Task[int]:
        """A command beside this one: what is a process elsewhere."""
        allowance = self.allowance
        if allowance.tasks >= allowance.limits.tasks:
            work.close()
            await streams.err("sh: cannot fork: Resource temporarily unavailable\n")
            raise Exit(MISUSE)
        allowance.tasks += 1
        task = asyncio.create_task(work)

        def ended(_: asyncio.Task[int]) -> None:
            allowance.tasks -= 1

        task.add_done_callback(ended)
        return task

    async def _in_background(self, chain: Chain, streams: Streams) -> int:
        try:
            return await self._chain(chain, streams)
        except Exit as end:
            return end.code

    async def _chain(self, chain: Chain, streams: Streams) -> int:
        status = await self._pipeline(chain.first, streams)
        for word, pipeline in chain.rest:
            if (word == "&&") == (status == 0):
                status = await self._pipeline(pipeline, streams)
        if status and self.stop_on_error and not chain.rest:
            raise Exit(status)
        return status

    async def _pipeline(self, pipeline: Pipeline, streams: Streams) -> int:
        if len(pipeline.commands) == 1:
            status = await self._command(pipeline.commands[0], streams)
        else:
            status = await self._piped(pipeline.commands, streams)
        self.status = int(status == 0) if pipeline.negated else status
        return self.status

    async def _piped(self, commands: list[Command], streams: Streams) -> int:
        """All commands at once; when the last one ends, the others end with it."""
        tasks: list[asyncio.Task[int]] = []
        stdin = streams.stdin
        try:
            for command in commands[:-1]:
                pipe = Pipe()
                part = replace(streams, stdin=stdin, out=pipe.write)
                tasks.append(await self._task(self._closing(command, part, pipe), streams))
                stdin = pipe
            tasks.append(await self._task(self._command(commands[-1], replace(streams, stdin=stdin)), streams))
            return await tasks[-1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _closing(self, command: Command, streams: Streams, pipe: Pipe) -> int:
        try:
            return await self._command(command, streams)
        except Exit as end:
            return end.code
        finally:
            pipe.close()

    async def _command(self, command: Command, streams: Streams) -> int:
        await self.allowance.step()
        if isinstance(command, Simple | Group):
            try:
                streams = await self._redirected(command.redirects, streams)
            except OSError as error:
                await streams.err(f"sh: {error.strerror}\n")
                return 1
        if isinstance(command, Simple):
            return await self._simple(command, streams)
        if isinstance(command, Group):
            return await self.script(command.body, streams)
        if isinstance(command, While):
            return await self._while(command, streams)
        if isinstance(command, For):
            return await self._for(command, streams)
        return await self._if(command, streams)

    async def _while(self, loop: While, streams: Streams) -> int:
        status = 0
        while (await self.script(loop.condition, streams) == 0) != loop.until:
            await self.allowance.step()
            status = await self.script(loop.body, streams)
        return status

    async def _for(self, loop: For, streams: Streams) -> int:
        status = 0
        with self.allowance.holding() as hold:
            for word in loop.words:
                for value in await self._expand(word, hold):
                    await self.allowance.step()
                    self._assign(loop.name, value)
                    status = await self.script(loop.body, streams)
        return status

    async def _if(self, choice: If, streams: Streams) -> int:
        for condition, body in choice.branches:
            if await self.script(condition, streams) == 0:
                return await self.script(body, streams)
        return await self.script(choice.otherwise, streams) if choice.otherwise else 0

    async def _simple(self, command: Simple, streams: Streams) -> int:
        with self.allowance.holding() as hold:
            argv = [value for word in command.words for value in await self._expand(word, hold)]
            values = {name: await self._joined(word, hold) for name, word in command.assignments}
            before = {name: self.env.get(name) for name in values}
            for name, value in values.items():
                self._assign(name, value)
            if not argv:
                return 0
            try:
                return await self._program(argv, streams, final=command.final)
            finally:
                for name, old in before.items():
                    self._assign(name, old)

    def _assign(self, name: str, value: str | None) -> None:
        """Set a variable, or (None) unset it; variables use the memory of the program."""
        self.allowance.hold(_size(value) - _size(self.env.get(name)))
        if value is None:
            self.env.pop(name, None)
        else:
            self.env[name] = value

    async def _redirected(self, redirects: list[Redirect], streams: Streams) -> Streams:
        for redirect in redirects:
            with self.allowance.holding() as hold:
                name = await self._joined(redirect.target, hold)
            if redirect.mode == "&":
                copy = streams.out if name == "1" else streams.err
                streams = replace(streams, err=copy) if redirect.stream == STDERR else replace(streams, out=copy)
            elif redirect.mode == "<":
                streams = replace(streams, stdin=Pipe(self.files.read(name)))
            else:
                write = self._to_file(name, streams, append=redirect.mode == ">>")
                streams = replace(streams, err=write) if redirect.stream == STDERR else replace(streams, out=write)
        return streams

    def _to_file(self, name: str, streams: Streams, *, append: bool) -> Write:
        special: dict[str, Write] = {
            "/dev/null": _drop,
            "/dev/stdout": streams.out,
            "/dev/stderr": streams.err,
            "/proc/1/fd/1": streams.out,
        }
        if name in special:
            return special[name]
        self.files.write(name, "", append=append)

        async def write(text: str) -> None:
            self.files.write(name, text, append=True)

        return write

    # Programs

    async def _program(self, argv: list[str], streams: Streams, *, final: bool) -> int:
        name = argv[0].rpartition("/")[2]
        sizes = [len(word) for word in argv]
        if max(sizes) >= LONGEST_ARGUMENT or sum(sizes) > ALL_ARGUMENTS:
            await streams.err(f"sh: {name[:100]}: Argument list too long\n")
            return NOT_RUN
        try:
            return await self._known(name, argv, streams, final=final)
        except OSError as error:
            await streams.err(f"{name}: {error.strerror}\n")
            return 1
        except (ValueError, OverflowError):
            await streams.err(f"{name}: invalid argument\n")
            return MISUSE

    async def _known(self, name: str, argv: list[str], streams: Streams, *, final: bool) -> int:
        builtin = getattr(self, f"_do_{name}", None) if name.isidentifier() else None
        if builtin is not None:
            return int(await builtin(argv[1:], streams))
        if name in SHELLS:
            return await self._nested_shell(argv, streams)
        program = self.programs.get(name) or programs.TABLE.get(name) or text_programs.TABLE.get(name)
        if program is None:
            return await self.forever() if final else 0
        call = programs.Call(argv[1:], self.env, streams, self.files, self.clock, self.hostname, self.allowance)
        return await program(call)

    async def _nested_shell(self, argv: list[str], streams: Streams) -> int:
        options = [word for word in argv[1:] if word.startswith(("-", "+"))]
        words = [word for word in argv[1:] if not word.startswith(("-", "+"))]
        if not any("c" in option.lstrip("-") for option in options if not option.startswith("--")):
            return 0 if not words else await self.forever()
        if not words:
            await streams.err(f"{argv[0]}: -c requires an argument\n")
            return MISUSE
        self.stop_on_error = self.stop_on_error or any("e" in option for option in options)
        for number, value in enumerate(words[1:]):
            self._assign(str(number), value)
        return await self.text(words[0], streams)

    async def _do_exit(self, args: list[str], streams: Streams) -> int:
        del streams
        raise Exit(int(args[0]) if args and args[0].lstrip("-").isdigit() else self.status)

    async def _do_exec(self, args: list[str], streams: Streams) -> int:
        raise Exit(await self._program(args, streams, final=True) if args else 0)

    async def _do_eval(self, args: list[str], streams: Streams) -> int:
        return await self.text(" ".join(args), streams)

    async def _do_export(self, args: list[str], streams: Streams) -> int:
        del streams
        for word in args:
            name, assigned, value = word.partition("=")
            if assigned:
                self._assign(name, value)
        return 0

    async def _do_unset(self, args: list[str], streams: Streams) -> int:
        del streams
        for name in args:
            self._assign(name, None)
        return 0

    async def _do_set(self, args: list[str], streams: Streams) -> int:
        del streams
        for option in args:
            if "e" in option and option.startswith(("+", "-")):
                self.stop_on_error = option[0] == "-"
        return 0

    async def _do_cd(self, args: list[str], streams: Streams) -> int:
        del args, streams
        return 0

    async def _do_trap(self, args: list[str], streams: Streams) -> int:
        del streams
        if any(name.removeprefix("SIG") in ("TERM", "15") for name in args[1:]):
            self.trap = args[0]
        return 0

    async def _do_wait(self, args: list[str], streams: Streams) -> int:
        del args, streams
        done = await asyncio.gather(*self._background, return_exceptions=True)
        self._background.clear()
        return 0 if all(not isinstance(code, BaseException) for code in done) else 1

    async def _do_time(self, args: list[str], streams: Streams) -> int:
        return await self._program(args, streams, final=False) if args else 0

    async def _do_timeout(self, args: list[str], streams: Streams) -> int:
        words = [word for word in args if not word.startswith("-")]
        seconds = durations.seconds(words[0]) if words else None
        if seconds is None or len(words) == 1:
            return MISUSE
        run = await self._task(self._program(words[1:], streams, final=True), streams)
        alarm = asyncio.create_task(self.clock.sleep(seconds))
        try:
            await asyncio.wait({run, alarm}, return_when=asyncio.FIRST_COMPLETED)
            return await run if run.done() else 124
        finally:
            run.cancel()
            alarm.cancel()

    # Words

    async def _joined(self, word: Word, hold: Callable[[int], None]) -> str:
        """The value of a word that is not split."""
        return "".join(await self._expand(word, hold, split=False))

    async def _expand(self, word: Word, hold: Callable[[int], None], *, split: bool = True) -> list[str]:
        """The values of a word: unquoted variables and outputs are split at spaces, and may vanish."""
        pieces = Pieces(hold)
        for part in word:
            text, whole = await self._value(part)
            await self.allowance.step(len(text))
            if whole or not split:
                pieces.add(text)
            else:
                pieces.split(text)
        return pieces.values()

    async def _value(self, part: Part) -> tuple[str, bool]:
        """The text of a part, and whether it stays in one piece."""
        if isinstance(part, Text):
            return part.text, True
        if isinstance(part, Variable):
            return self._variable(part), part.quoted
        if isinstance(part, Number):
            return str(arithmetic.evaluate(part.expression, self.env)), True
        assert isinstance(part, Output)
        return await self._output(part.script), part.quoted

    async def _output(self, script: Script) -> str:
        chunks: list[str] = []
        with self.allowance.holding() as hold:

            async def keep(text: str) -> None:
                hold(sys.getsizeof(text))
                chunks.append(text)

            try:
                await self.script(script, Streams(out=keep, err=_drop))
            except Exit as end:
                self.status = end.code
            return "".join(chunks).rstrip("\n")

    def _variable(self, variable: Variable) -> str:
        if variable.name == "?":
            return str(self.status)
        if variable.name == "$":
            return "1"
        value = self.env.get(variable.name, "")
        return value if value or variable.default is None else variable.default


async def _drop(text: str) -> None:
    del text


def _size(value: str | None) -> int:
    return 0 if value is None else sys.getsizeof(value) + _PER_VARIABLE
