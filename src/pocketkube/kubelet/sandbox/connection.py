"""The kubelets' side: programs started in another process, which is started when the first one needs it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping

import msgspec

from pocketkube.clock import Clock
from pocketkube.kubelet.runtime.interpreters import isolated
from pocketkube.kubelet.runtime.processes import guarded, own_environment
from pocketkube.kubelet.runtime.runs import SIGNALLED, StartError
from pocketkube.kubelet.sandbox import messages
from pocketkube.kubelet.sandbox.messages import (
    Begun,
    Ended,
    Forget,
    FromWorker,
    Output,
    Signal,
    Sleep,
    Start,
    Taken,
    Woken,
)

log = logging.getLogger(__name__)

KILLED = SIGNALLED + signal.SIGKILL
Write = Callable[[str, str], None]  # text, stream


class SandboxedProgram:
    """One program that was started."""

    def __init__(self, number: int, write: Write, send: Callable[[messages.ToWorker], None], clock: Clock) -> None:
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.begun = asyncio.Event()  # the other process had to be started, and others had their turns
        self.settled = asyncio.Event()  # it slept for the first time, or is over
        self.timers: dict[int, asyncio.Task[None]] = {}
        self.write = write
        self._id = number
        self._send = send
        self._clock = clock
        self._is_busy = False

    def terminate(self) -> None:
        if not self.ended.done():
            self.busy()
            self._send(Signal(self._id, kill=False))

    def kill(self) -> None:
        """Over at once, whatever the other process does."""
        if not self.ended.done():
            self._send(Signal(self._id, kill=True))
            self.end(Ended(self._id, KILLED))

    def end(self, ended: Ended) -> None:
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()
        self.begun.set()
        self.idle()
        if not self.ended.done():
            self.ended.set_result(ended)

    def busy(self) -> None:
        """The other process has something to do for this program."""
        if not self._is_busy:
            self._is_busy = True
            self._clock.pause()

    def idle(self) -> None:
        """It has done that: the program sleeps, or is over."""
        self.settled.set()
        if self._is_busy:
            self._is_busy = False
            self._clock.resume()


class Sandbox:
    """Starts programs. If their process ends, so do they, and the next program gets a new one."""

    def __init__(self, clock: Clock, programs: Mapping[str, str] | None = None) -> None:
        self._clock = clock
        self._programs = dict(programs or {})
        self._numbers = itertools.count(1)
        self._running: dict[int, SandboxedProgram] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return self._process.pid if self._process is not None else None

    def start(self, make: Callable[[int], Start], write: Write) -> SandboxedProgram:
        if self._process is None:
            try:
                self._start_process()
            except OSError as error:
                raise StartError(f"cannot start the process of simulated programs: {error.strerror}") from None
        number = next(self._numbers)
        program = self._running[number] = SandboxedProgram(number, write, self._send, self._clock)
        program.ended.add_done_callback(lambda _: self._running.pop(number, None))
        program.busy()
        self._send(make(number))
        return program

    async def stop(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

    def _start_process(self) -> None:
        ours, theirs = socket.socketpair()
        modules = [target.partition(":")[0] for target in self._programs.values()]
        words = [str(theirs.fileno()), msgspec.json.encode(self._programs).decode()]
        with theirs:
            self._process = subprocess.Popen(
                [*guarded(), *isolated("pocketkube.kubelet.sandbox.worker", *modules), *words],
                env=own_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._outgoing = asyncio.Queue()
        self._serving = asyncio.create_task(self._serve(ours, self._process), name="sandbox")

    async def _serve(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        sending = asyncio.create_task(self._copy_outgoing(writer))
        try:
            while (body := await messages.read(reader)) is not None:
                self._take(messages.from_worker.decode(body))
                await asyncio.sleep(0)  # messages that wait already must not keep others from their turn
            log.warning("the process that interprets simulated programs ended; %d are killed", len(self._running))
        finally:
            self._process = None
            sending.cancel()
            writer.close()
            process.kill()
            process.wait()
            for number, program in list(self._running.items()):
                program.end(Ended(number, KILLED))

    async def _copy_outgoing(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(await self._outgoing.get())
                await writer.drain()

    def _send(self, message: messages.ToWorker) -> None:
        self._outgoing.put_nowait(messages.frame(message))

    def _take(self, message: FromWorker) -> None:
        program = self._running.get(message.id)
        if program is None:
            return
        if isinstance(message, Begun):
            program.begun.set()
        elif isinstance(message, Output):
            program.write(message.text, message.stream)
        elif isinstance(message, Sleep):
            program.timers[message.timer] = asyncio.create_task(self._wake(program, message))
            program.idle()
        elif isinstance(message, Taken):
            program.idle()
        elif isinstance(message, Forget):
            timer = program.timers.pop(message.timer, None)
            if timer is not None:
                timer.cancel()
        else:
            program.end(message)

    async def _wake(self, program: SandboxedProgram, asked: Sleep) -> None:
        if asked.seconds > 0:
            await self._clock.sleep(asked.seconds)
        program.timers.pop(asked.timer, None)
        program.busy()
        self._send(Woken(asked.id, asked.timer, self._clock.now()))
