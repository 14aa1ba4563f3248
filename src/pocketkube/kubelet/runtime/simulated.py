"""A container that only seems to run: a script in our small shell, or nothing at all until it is stopped.

Scripts are interpreted in another process (`kubelet.sandbox`). A container without a command needs none.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any

from pocketkube.clock import Clock
from pocketkube.kubelet import pod_annotations
from pocketkube.kubelet.runtime import runs
from pocketkube.kubelet.runtime.runs import SIGNALLED, Launch, StartError
from pocketkube.kubelet.sandbox.connection import Sandbox, SandboxedProgram
from pocketkube.kubelet.sandbox.messages import Start
from pocketkube.kubelet.shell.durations import FOREVER

_LONGEST_ARGUMENT, _ALL_ARGUMENTS = 131_072, 2_097_152  # as in the kernel
_LONGEST_EXEC_OUTPUT = 10_240  # as a kubelet reads it
_FIRST_SECONDS = 5.0


class SimulatedRun:
    """Ends when its script does, or when it is stopped; a script may `trap` SIGTERM."""

    def __init__(self, launch: Launch, clock: Clock, sandbox: Sandbox) -> None:
        _check_size(launch)
        self.pid = runs.unused_pid()
        self.reason = ""
        self._launch = launch
        self._clock = clock
        self._sandbox = sandbox
        self._signalled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._program = self._start(launch.argv) if launch.argv else None
        self._executed: set[SandboxedProgram] = set()
        self._ended = asyncio.create_task(self._live(), name=f"container {launch.container_id[:12]}")

    async def begun(self) -> None:
        if self._program is not None:
            await self._program.begun.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_SECONDS):
                    await self._program.settled.wait()

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def execute(self, argv: list[str]) -> tuple[int, str]:
        output: list[str] = []

        def write(text: str, stream: str) -> None:
            del stream
            if sum(len(each) for each in output) < _LONGEST_EXEC_OUTPUT:
                output.append(text)

        try:
            program = self._sandbox.start(lambda number: self._message(number, argv, final=False), write)
        except StartError as error:
            return 1, str(error)
        self._executed.add(program)
        try:
            ended = await program.ended
        finally:
            program.kill()
            self._executed.discard(program)
        return ended.code, "".join(output)[:_LONGEST_EXEC_OUTPUT]

    def terminate(self) -> None:
        if self._program is None:
            self._end(SIGNALLED + signal.SIGTERM)
        else:
            self._program.terminate()

    def kill(self) -> None:
        if self._program is None:
            self._end(SIGNALLED + signal.SIGKILL)
        else:
            self._program.kill()

    def _end(self, code: int) -> None:
        if not self._signalled.done():
            self._signalled.set_result(code)

    async def _live(self) -> int:
        try:
            if self._program is None:
                return await self._idle()
            ended = await self._program.ended
            self.reason = ended.reason
            return ended.code
        finally:
            for program in list(self._executed):
                program.kill()

    async def _idle(self) -> int:
        """The simulated work of the container; annotations set its duration and its outcome."""
        seconds, code = self._work()
        work = asyncio.create_task(self._clock.sleep(seconds))
        try:
            either: set[asyncio.Future[Any]] = {work, self._signalled}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return self._signalled.result() if self._signalled.done() else code
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

    def _start(self, argv: list[str]) -> SandboxedProgram:
        return self._sandbox.start(lambda number: self._message(number, argv, final=True), self._launch.log.write)

    def _message(self, number: int, argv: list[str], *, final: bool) -> Start:
        launch, (seconds, code) = self._launch, self._work()
        return Start(
            id=number,
            argv=argv,
            env=dict(launch.env),
            hostname=launch.hostname,
            root=str(launch.files.root),
            mounts={path: (str(mount.volume), mount.inner) for path, mount in launch.files.mounts.items()},
            final=final,
            work_seconds=seconds,
            work_code=code,
        )

    def _work(self) -> tuple[float, int]:
        given = self._launch.annotations
        seconds = _number(given.get(pod_annotations.SIMULATED_SECONDS), FOREVER)
        return seconds, int(_number(given.get(pod_annotations.SIMULATED_EXIT_CODE), 0))


def _check_size(launch: Launch) -> None:
    sizes = [len(word) for word in launch.argv] + [len(name) + len(value) for name, value in launch.env.items()]
    if sizes and (max(sizes) >= _LONGEST_ARGUMENT or sum(sizes) > _ALL_ARGUMENTS):
        name = launch.argv[0][:100] if launch.argv else ""
        raise StartError(f'exec "{name}": argument list too long')


def _number(text: str | None, default: float) -> float:
    try:
        found = float(text) if text else default
    except ValueError:
        return default
    return found if 0 <= found <= FOREVER else default
