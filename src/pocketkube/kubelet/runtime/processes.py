"""A container as a child process.

The child must not outlive the cluster, even if that is killed. So a first, tiny program asks the kernel to end the
process with its parent and then becomes the real one: doing this between fork and exec would run Python code in a
process that has lost its threads, and gRPC has some.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys

from pocketkube.kubelet.containers.logs import ContainerLog
from pocketkube.kubelet.runtime.runs import SIGNALLED, Launch, StartError

_GUARD = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(137)
os.execve(sys.argv[2], sys.argv[2:], os.environ)
"""
# What a child process needs of our own environment; a container has none of the rest. Its home is its own folder:
# what is in ours, such as a kubeconfig, is not for it.
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
_READ_BYTES = 65_536


class ProcessRun:
    """A child process with its output in the container's log."""

    def __init__(self, process: subprocess.Popen[bytes], log: ContainerLog) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid
        self.reason = ""
        self._ended = asyncio.create_task(self._follow(), name=f"process {process.pid}")

    @classmethod
    def start(cls, launch: Launch) -> ProcessRun:
        command = [*guarded(), *launch.argv]
        launch.files.root.mkdir(parents=True, exist_ok=True)
        try:
            process = subprocess.Popen(
                command,
                env=own_environment() | {"HOME": str(launch.files.root)} | dict(launch.env),
                cwd=launch.files.root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(f"cannot start {command[0]}: {error.strerror}") from None
        return cls(process, launch.log)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def execute(self, argv: list[str]) -> tuple[int, str]:
        """There is no container around the process to run a command in: taken as successful."""
        del argv
        return 0, ""

    def terminate(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """The whole session: a container takes its children with it."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _follow(self) -> int:
        copying = asyncio.create_task(self._copy_output())
        try:
            code = await _exit_code(self._process)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await copying
        finally:
            copying.cancel()
        return SIGNALLED - code if code < 0 else code

    async def _copy_output(self) -> None:
        output = self._process.stdout
        assert output is not None
        os.set_blocking(output.fileno(), False)
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(output.fileno(), ready.set)
        try:
            while True:
                await ready.wait()
                ready.clear()
                data = output.read(_READ_BYTES)
                if data is None:
                    continue
                if not data:
                    return
                ready.set()
                self._log.write(data.decode(errors="replace"))
        finally:
            loop.remove_reader(output.fileno())
            output.close()


async def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a child without a thread where the kernel allows it."""
    if not hasattr(os, "pidfd_open"):
        return await asyncio.to_thread(process.wait)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    descriptor = os.pidfd_open(process.pid)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return process.wait()


def guarded() -> list[str]:
    """The words before a command that make it end with this process."""
    return [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid())]


def own_environment() -> dict[str, str]:
    """What a child process gets of our own variables."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return inherited | {"PYTHONUNBUFFERED": "1"}
