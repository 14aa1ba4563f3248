"""One program of a simulated container, in the process that interprets it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from pocketkube.kubelet.container_files import ContainerFiles, Mount
from pocketkube.kubelet.sandbox.messages import (
    LARGEST_OUTPUT,
    Begun,
    Ended,
    Forget,
    FromWorker,
    Output,
    Sleep,
    Start,
    Taken,
)
from pocketkube.kubelet.shell.files import Files
from pocketkube.kubelet.shell.limits import MIB, PER_LINE, PER_MESSAGE, Allowance, OutOfMemoryError, Shared
from pocketkube.kubelet.shell.programs import Program
from pocketkube.kubelet.shell.running import Exit, Shell
from pocketkube.kubelet.shell.streams import Streams

Send = Callable[[FromWorker], Awaitable[None]]
SIGNALLED = 128
OUT_OF_MEMORY = "OOMKilled"
_FLUSH_SECONDS = 0.02
_FIRST_SECONDS = 0.05
_FAILED = 1


class RunningProgram:
    """Ends when its script does, or by a signal; a script may `trap` SIGTERM."""

    def __init__(self, start: Start, send: Send, programs: Mapping[str, Program], shared: Shared) -> None:
        self._start = start
        self._send = send
        self._allowance = Allowance(shared=shared, killed=self._out_of_memory)
        self._output = _BufferedOutput(start.id, send, self._allowance)
        self._clock = _ClusterClock(start.id, send, self._allowance, self._output.flush)
        self._streams = Streams(out=self._output.out, err=self._output.err)
        mounts = {path: Mount(Path(volume), inner) for path, (volume, inner) in start.mounts.items()}
        self._shell = Shell(
            env=start.env,
            files=Files(ContainerFiles(Path(start.root), mounts), self._allowance),
            clock=self._clock,
            forever=self._forever,
            allowance=self._allowance,
            hostname=start.hostname,
            programs=programs,
        )
        self._ending: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._traps: set[asyncio.Task[None]] = set()
        self._began = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """To the end, which is told."""
        await self._send(Begun(self._start.id))
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait({work, self._ending}, return_when=asyncio.FIRST_COMPLETED)
            ended = self._ending.result() if self._ending.done() else work.result()
        finally:
            for task in (work, *self._traps):
                task.cancel()
            await asyncio.gather(work, *self._traps, return_exceptions=True)
            self._allowance.close()
        if ended.reason == OUT_OF_MEMORY:
            used = self._allowance.limits.memory // MIB
            await self._output.err(f"killed: out of memory (a simulated program may use {used} MiB)\n")
        await self._output.finish()
        await self._send(ended)

    def terminate(self) -> None:
        """SIGTERM. A signal right after the start may have waited for this process: the script sets its traps first."""
        loop = asyncio.get_running_loop()
        loop.call_at(max(loop.time(), self._began + _FIRST_SECONDS), self._terminate)

    def woken(self, timer: int, now: float) -> None:
        self._clock.woken(timer, now)

    def _terminate(self) -> None:
        trap = self._shell.trap
        if trap is None:
            self._end(SIGNALLED + signal.SIGTERM)
        else:
            task = asyncio.create_task(self._run_trap(trap))
            self._traps.add(task)
            task.add_done_callback(self._traps.discard)

    def _out_of_memory(self) -> None:
        self._end(SIGNALLED + signal.SIGKILL, OUT_OF_MEMORY)

    def _end(self, code: int, reason: str = "") -> None:
        if not self._ending.done():
            self._ending.set_result(Ended(self._start.id, code, reason))

    async def _work(self) -> Ended:
        code, reason = _FAILED, ""
        try:
            code = await self._shell.command(self._start.argv, self._streams, final=self._start.final)
        except (OutOfMemoryError, MemoryError):
            code, reason = SIGNALLED + signal.SIGKILL, OUT_OF_MEMORY
        except RecursionError:
            await self._output.err("sh: maximum recursion depth reached\n")
        except Exception as error:  # noqa: BLE001  the fault of one program must not end the others
            await self._output.err(f"sh: internal error: {type(error).__name__}\n")
        return Ended(self._start.id, code, reason)

    async def _forever(self) -> int:
        """The simulated work of the container."""
        await self._clock.sleep(self._start.work_seconds)
        return self._start.work_code

    async def _run_trap(self, trap: str) -> None:
        try:
            await self._shell.text(trap, self._streams)
            await self._send(Taken(self._start.id))
        except Exit as end:
            self._end(end.code)
        except (OutOfMemoryError, MemoryError):
            self._out_of_memory()


class _ClusterClock:
    """The time is the kubelet's: it may be a virtual one."""

    def __init__(self, program: int, send: Send, allowance: Allowance, flush: Callable[[], Awaitable[None]]) -> None:
        self._program = program
        self._send = send
        self._allowance = allowance
        self._flush = flush
        self._timers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[float]] = {}

    async def now(self) -> float:
        return await self._wait(0.0)

    async def sleep(self, seconds: float) -> None:
        await self._allowance.step()
        if seconds > 0:
            await self._wait(seconds)

    def woken(self, timer: int, now: float) -> None:
        waiting = self._waiting.get(timer)
        if waiting is not None and not waiting.done():
            waiting.set_result(now)

    async def _wait(self, seconds: float) -> float:
        await self._flush()  # whoever sees the program sleep has seen what it said before
        await self._allowance.output(PER_MESSAGE)
        timer = next(self._timers)
        waiting: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting[timer] = waiting
        try:
            await self._send(Sleep(self._program, timer, seconds))
            return await waiting
        finally:
            del self._waiting[timer]
            if not waiting.done() or waiting.cancelled():
                with contextlib.suppress(ConnectionError):
                    await asyncio.shield(asyncio.ensure_future(self._send(Forget(self._program, timer))))


class _BufferedOutput:
    """Output goes to the kubelet in few messages, at the rate that the program is allowed."""

    def __init__(self, program: int, send: Send, allowance: Allowance) -> None:
        self._program = program
        self._send = send
        self._allowance = allowance
        self._buffer: list[tuple[str, str]] = []
        self._size = 0
        self._queue: deque[Output] = deque()  # a flush may be cancelled while it waits
        self._sending = asyncio.Lock()
        self._flushing: asyncio.Task[None] | None = None

    async def out(self, text: str) -> None:
        await self._write("stdout", text)

    async def err(self, text: str) -> None:
        await self._write("stderr", text)

    async def finish(self) -> None:
        """What is left, at once."""
        if self._flushing is not None:
            self._flushing.cancel()
        self._queue.extend(self._messages())
        while self._queue:
            await self._send(self._queue.popleft())

    async def _write(self, stream: str, text: str) -> None:
        if not text:
            return
        self._buffer.append((stream, text))
        self._size += len(text) + PER_LINE
        if self._size >= LARGEST_OUTPUT:
            await self.flush()
        elif self._flushing is None:
            self._flushing = asyncio.create_task(self._flush_soon())

    async def _flush_soon(self) -> None:
        await asyncio.sleep(_FLUSH_SECONDS)
        self._flushing = None
        await self.flush()

    async def flush(self) -> None:
        async with self._sending:
            self._queue.extend(self._messages())
            while self._queue:
                text = self._queue[0].text
                await self._allowance.output(PER_MESSAGE + len(text) + PER_LINE * text.count("\n"))
                await self._send(self._queue.popleft())

    def _messages(self) -> list[Output]:
        taken, self._buffer, self._size = self._buffer, [], 0
        made: list[Output] = []
        for stream, texts in itertools.groupby(taken, key=lambda each: each[0]):
            text = "".join(text for _, text in texts)
            pieces = range(0, len(text), LARGEST_OUTPUT)
            made += [Output(self._program, stream, text[start : start + LARGEST_OUTPUT]) for start in pieces]
        return made
