"""A container that only seems to run: a script in our small shell, or nothing at all until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import Mapping

from pocketkube.clock import Clock
from pocketkube.kubelet import pod_annotations
from pocketkube.kubelet.runtime.runs import SIGNALLED, Launch
from pocketkube.kubelet.shell import parsing
from pocketkube.kubelet.shell.programs import FOREVER, Program
from pocketkube.kubelet.shell.running import Exit, Shell
from pocketkube.kubelet.shell.streams import Files, Streams

_ABOVE_ALL_PIDS = 4_194_305  # the kernel's largest process id is 4194304
_pids = itertools.count(_ABOVE_ALL_PIDS)


class SimulatedRun:
    """Ends when its script does, or when it is stopped; a script may `trap` SIGTERM."""

    def __init__(self, launch: Launch, clock: Clock, programs: Mapping[str, Program] | None = None) -> None:
        self.pid = next(_pids)
        self._programs = programs or {}
        self._launch = launch
        self._clock = clock
        self._streams = Streams(out=launch.log.write, err=lambda text: launch.log.write(text, "stderr"))
        self._shell = self._new_shell()
        self._signalled: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._traps: set[asyncio.Task[None]] = set()
        self._ended = asyncio.create_task(self._live(), name=f"container {launch.container_id[:12]}")

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def execute(self, argv: list[str]) -> tuple[int, str]:
        output: list[str] = []
        code = await self._new_shell().command(argv, Streams(out=output.append, err=output.append), final=False)
        return code, "".join(output)

    def terminate(self) -> None:
        trap = self._shell.traps.get("TERM")
        if trap is None:
            self._end(SIGNALLED + signal.SIGTERM)
        elif trap:
            task = asyncio.create_task(self._run_trap(trap))
            self._traps.add(task)
            task.add_done_callback(self._traps.discard)

    def kill(self) -> None:
        self._end(SIGNALLED + signal.SIGKILL)

    def _new_shell(self) -> Shell:
        launch = self._launch
        return Shell(
            env=dict(launch.env),
            files=Files(launch.scratch, launch.mounts),
            clock=self._clock,
            forever=self._forever,
            hostname=launch.hostname,
            programs=self._programs,
        )

    def _end(self, code: int) -> None:
        if not self._signalled.done():
            self._signalled.set_result(code)

    async def _live(self) -> int:
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait({work, self._signalled}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else self._signalled.result()
        finally:
            for task in (work, *self._traps):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work

    async def _work(self) -> int:
        if not self._launch.argv:
            return await self._forever()
        return await self._shell.command(self._launch.argv, self._streams)

    async def _forever(self) -> int:
        """The simulated work of the container; annotations set its duration and its outcome."""
        given = self._launch.annotations
        await self._clock.sleep(_number(given.get(pod_annotations.SIMULATED_SECONDS), FOREVER))
        return int(_number(given.get(pod_annotations.SIMULATED_EXIT_CODE), 0))

    async def _run_trap(self, trap: str) -> None:
        try:
            await self._shell.script(parsing.parse(trap), self._streams)
        except Exit as end:
            self._end(end.code)
        except parsing.ShellSyntaxError:
            self._end(SIGNALLED + signal.SIGTERM)


def _number(text: str | None, default: float) -> float:
    try:
        return float(text) if text else default
    except ValueError:
        return default
