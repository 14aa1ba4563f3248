"""The process that interprets the programs of simulated containers.

It is apart from the API server so that no program can take the server's time or memory. It has limits of its own, as
a last resort behind those of each program; whatever ends it, the kubelets start another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import resource
import signal
import socket
import sys

import msgspec

from pocketkube.kubelet.sandbox import messages
from pocketkube.kubelet.sandbox.messages import FromWorker, Signal, Start
from pocketkube.kubelet.sandbox.program import RunningProgram
from pocketkube.kubelet.shell.limits import MIB, Shared
from pocketkube.kubelet.shell.programs import Program

MEMORY = 1536 * MIB  # address space
LARGEST_FILE = 64 * MIB
OPEN_FILES = 4096
_LONGEST_TURN = 10.0  # seconds of processor time
_NICENESS = 5


def main() -> None:
    limit()
    connection = socket.socket(fileno=int(sys.argv[1]))
    found = msgspec.json.decode(sys.argv[2], type=dict[str, str])
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    asyncio.run(Worker({name: load(target) for name, target in found.items()}).serve(connection))


def limit() -> None:
    """What this process may use at the most."""
    wanted = {
        resource.RLIMIT_AS: MEMORY,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in wanted.items():
        with contextlib.suppress(ValueError, OSError):  # not everywhere can each be set
            resource.setrlimit(kind, (most, most))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that is too large is an error of the program
    os.nice(_NICENESS)


def load(target: str) -> Program:
    """The function that `module:name` refers to."""
    module, _, name = target.partition(":")
    program: Program = getattr(importlib.import_module(module), name)
    return program


class Worker:
    """Runs programs as the kubelets ask for them, until the connection ends."""

    def __init__(self, programs: dict[str, Program]) -> None:
        self._programs = programs
        self._shared = Shared()
        self._running: dict[int, tuple[RunningProgram, asyncio.Task[None]]] = {}
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, connection: socket.socket) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        watch = asyncio.create_task(_watch_turns())
        while (body := await messages.read(reader)) is not None:
            self._take(messages.to_worker.decode(body))
        watch.cancel()
        os._exit(0)  # the kubelets are gone: nothing here is worth an orderly end

    def _take(self, message: messages.ToWorker) -> None:
        if isinstance(message, Start):
            program = RunningProgram(message, self._send, self._programs, self._shared)
            task = asyncio.create_task(program.run())
            self._running[message.id] = program, task
            task.add_done_callback(lambda _: self._running.pop(message.id, None))
            return
        program_and_task = self._running.get(message.id)
        if program_and_task is None:
            return
        program, task = program_and_task
        if not isinstance(message, Signal):
            program.woken(message.timer, message.now)
        elif message.kill:
            task.cancel()
        else:
            program.terminate()

    async def _send(self, message: FromWorker) -> None:
        assert self._writer is not None
        self._writer.write(messages.frame(message))
        await self._writer.drain()


async def _watch_turns() -> None:
    """A turn that never ends would hold up all programs: the kernel ends the process then."""
    while True:
        signal.setitimer(signal.ITIMER_VIRTUAL, _LONGEST_TURN)
        await asyncio.sleep(1)


if __name__ == "__main__":
    main()
