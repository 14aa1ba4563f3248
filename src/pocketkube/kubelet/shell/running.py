"""Runs a parsed script.

Unknown programs represent the real work of an image: in last place they run until the
container is stopped, anywhere else they succeed at once.
"""

from __future__ import annotations

import ast
import asyncio
import operator
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from pocketkube.clock import Clock
from pocketkube.kubelet.shell import parsing, programs
from pocketkube.kubelet.shell.streams import Files, Pipe, Streams, filled
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

MISUSE = 2
SHELLS = ("sh", "bash", "ash", "dash")
_IDLE_LOOP_SECONDS = 0.01  # a loop without a pause must not take the whole machine


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
    clock: Clock
    forever: Callable[[], Awaitable[int]]
    hostname: str = "localhost"
    programs: Mapping[str, programs.Program] = field(default_factory=dict)  # besides those that every shell knows
    traps: dict[str, str] = field(default_factory=dict)
    status: int = 0
    stop_on_error: bool = False
    _background: list[asyncio.Task[int]] = field(default_factory=list)

    async def command(self, argv: list[str], streams: Streams, *, final: bool = True) -> int:
        """Run a program as a container's command is run: without a shell, unless it is one."""
        try:
            return await self._program(argv, streams, final=final)
        except Exit as end:
            return end.code
        finally:
            for task in self._background:
                task.cancel()

    async def script(self, script: Script, streams: Streams) -> int:
        for chain in script.chains:
            if chain.background:
                self._background.append(asyncio.create_task(self._in_background(chain, streams)))
                self.status = 0
            else:
                self.status = await self._chain(chain, streams)
        return self.status

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
        for position, command in enumerate(commands):
            if position == len(commands) - 1:
                tasks.append(asyncio.create_task(self._command(command, replace(streams, stdin=stdin))))
                break
            pipe = Pipe()
            part = replace(streams, stdin=stdin, out=pipe.write)
            tasks.append(asyncio.create_task(self._closing(command, part, pipe)))
            stdin = pipe
        try:
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
        if isinstance(command, Simple):
            return await self._simple(command, streams)
        if isinstance(command, Group):
            return await self.script(command.body, await self._redirected(command.redirects, streams))
        if isinstance(command, While):
            return await self._while(command, streams)
        if isinstance(command, For):
            return await self._for(command, streams)
        return await self._if(command, streams)

    async def _while(self, loop: While, streams: Streams) -> int:
        status = 0
        while (await self.script(loop.condition, streams) == 0) != loop.until:
            status = await self.script(loop.body, streams)
            await asyncio.sleep(_IDLE_LOOP_SECONDS)
        return status

    async def _for(self, loop: For, streams: Streams) -> int:
        status = 0
        for word in loop.words:
            for value in await self._expand(word):
                self.env[loop.name] = value
                status = await self.script(loop.body, streams)
        return status

    async def _if(self, choice: If, streams: Streams) -> int:
        for condition, body in choice.branches:
            if await self.script(condition, streams) == 0:
                return await self.script(body, streams)
        return await self.script(choice.otherwise, streams) if choice.otherwise else 0

    async def _simple(self, command: Simple, streams: Streams) -> int:
        argv = [value for word in command.words for value in await self._expand(word)]
        streams = await self._redirected(command.redirects, streams)
        values = {name: "".join(await self._expand(word, split=False)) for name, word in command.assignments}
        if not argv:
            self.env.update(values)
            return 0
        before = dict(self.env)
        self.env.update(values)
        try:
            return await self._program(argv, streams, final=command.final)
        finally:
            if values:
                self.env = before

    async def _redirected(self, redirects: list[Redirect], streams: Streams) -> Streams:
        for redirect in redirects:
            name = "".join(await self._expand(redirect.target, split=False))
            if redirect.mode == "&":
                copy = streams.out if name == "1" else streams.err
                streams = replace(streams, err=copy) if redirect.stream == MISUSE else replace(streams, out=copy)
            elif redirect.mode == "<":
                streams = replace(streams, stdin=filled(self.files.read(name)))
            else:
                write = self._to_file(name, streams, append=redirect.mode == ">>")
                streams = replace(streams, err=write) if redirect.stream == MISUSE else replace(streams, out=write)
        return streams

    def _to_file(self, name: str, streams: Streams, *, append: bool) -> Callable[[str], None]:
        special: dict[str, Callable[[str], None]] = {
            "/dev/null": lambda _: None,
            "/dev/stdout": streams.out,
            "/dev/stderr": streams.err,
            "/proc/1/fd/1": streams.out,
        }
        if name in special:
            return special[name]
        if not append:
            self.files.write(name, "")
        return lambda text: self.files.write(name, text, append=True)

    # Programs

    async def _program(self, argv: list[str], streams: Streams, *, final: bool) -> int:
        name = argv[0].rpartition("/")[2]
        builtin = getattr(self, f"_do_{name}", None) if name.isidentifier() else None
        if builtin is not None:
            return int(await builtin(argv[1:], streams))
        if name in SHELLS:
            return await self._nested_shell(argv, streams)
        program = self.programs.get(name) or programs.TABLE.get(name)
        if program is not None:
            call = programs.Call(argv[1:], self.env, streams, self.files, self.clock, self.hostname)
            try:
                return await program(call)
            except OSError as error:
                streams.err(f"{name}: {error.strerror}\n")
                return 1
        return await self.forever() if final else 0

    async def _nested_shell(self, argv: list[str], streams: Streams) -> int:
        options = [word for word in argv[1:] if word.startswith(("-", "+"))]
        words = [word for word in argv[1:] if not word.startswith(("-", "+"))]
        if not any("c" in option.lstrip("-") for option in options if not option.startswith("--")):
            return 0 if not words else await self.forever()
        if not words:
            streams.err(f"{argv[0]}: -c requires an argument\n")
            return MISUSE
        self.stop_on_error = self.stop_on_error or any("e" in option for option in options)
        for number, value in enumerate(words[1:]):
            self.env[str(number)] = value
        try:
            script = parsing.parse(words[0])
        except parsing.ShellSyntaxError as error:
            streams.err(f"{argv[0]}: {error}\n")
            return MISUSE
        return await self.script(script, streams)

    async def _do_exit(self, args: list[str], streams: Streams) -> int:
        del streams
        raise Exit(int(args[0]) if args and args[0].lstrip("-").isdigit() else self.status)

    async def _do_exec(self, args: list[str], streams: Streams) -> int:
        raise Exit(await self._program(args, streams, final=True) if args else 0)

    async def _do_eval(self, args: list[str], streams: Streams) -> int:
        return await self.script(parsing.parse(" ".join(args)), streams)

    async def _do_export(self, args: list[str], streams: Streams) -> int:
        del streams
        for word in args:
            name, assigned, value = word.partition("=")
            if assigned:
                self.env[name] = value
        return 0

    async def _do_unset(self, args: list[str], streams: Streams) -> int:
        del streams
        for name in args:
            self.env.pop(name, None)
        return 0

    async def _do_set(self, args: list[str], streams: Streams) -> int:
        del streams
        for option in args:
            if "e" in option and option[0] in "+-":
                self.stop_on_error = option[0] == "-"
        return 0

    async def _do_cd(self, args: list[str], streams: Streams) -> int:
        del args, streams
        return 0

    async def _do_trap(self, args: list[str], streams: Streams) -> int:
        del streams
        for name in args[1:]:
            self.traps[name.removeprefix("SIG").replace("15", "TERM")] = args[0]
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
        seconds = programs.seconds(words[0]) if words else None
        if seconds is None or len(words) == 1:
            return MISUSE
        run = asyncio.create_task(self._program(words[1:], streams, final=True))
        alarm = asyncio.create_task(self.clock.sleep(seconds))
        try:
            await asyncio.wait({run, alarm}, return_when=asyncio.FIRST_COMPLETED)
            return await run if run.done() else 124
        finally:
            run.cancel()
            alarm.cancel()

    # Words

    async def _expand(self, word: Word, *, split: bool = True) -> list[str]:
        """The values of a word: unquoted variables and outputs are split at spaces, and may vanish."""
        values: list[str] = []
        current: str | None = None
        for part in word:
            text, whole = await self._value(part)
            if whole or not split:
                current = (current or "") + text
                continue
            pieces = text.split()
            if text[:1].isspace() and current is not None:
                values.append(current)
                current = None
            for position, piece in enumerate(pieces):
                if position:
                    values.append(current or "")
                    current = None
                current = (current or "") + piece
            if pieces and text[-1:].isspace():
                values.append(current or "")
                current = None
        return values if current is None else [*values, current]

    async def _value(self, part: Part) -> tuple[str, bool]:
        """The text of a part, and whether it stays in one piece."""
        if isinstance(part, Text):
            return part.text, True
        if isinstance(part, Variable):
            return self._variable(part), part.quoted
        if isinstance(part, Number):
            return str(self._number(part.expression)), True
        assert isinstance(part, Output)
        chunks: list[str] = []
        inner = Streams(out=chunks.append, err=lambda _: None)
        try:
            await self.script(part.script, inner)
        except Exit as end:
            self.status = end.code
        return "".join(chunks).rstrip("\n"), part.quoted

    def _variable(self, variable: Variable) -> str:
        if variable.name == "?":
            return str(self.status)
        if variable.name == "$":
            return "1"
        value = self.env.get(variable.name, "")
        return value if value or variable.default is None else variable.default

    def _number(self, expression: str) -> int:
        try:
            return _evaluate(ast.parse(expression.replace("$", "").strip(), mode="eval").body, self.env)
        except (SyntaxError, ValueError, ZeroDivisionError, KeyError):
            return 0


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


def _evaluate(node: ast.expr, env: dict[str, str]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return int(env.get(node.id, "0") or 0)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand, env)
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_evaluate(node.left, env), _evaluate(node.right, env))
    raise ValueError(ast.dump(node))
