"""Owns a sandbox and takes it down when the test run ends, in whatever way.

Started by the test run with a pipe on its standard input. It makes the namespaces with a small first process
inside (`sandbox_init.py`), tells that process's id on its standard output and waits. When the pipe closes (the run is
over, crashed or was killed) it ends the first process, upon which the kernel ends everything else in the sandbox,
and removes what namespaces do not cover: cgroups and the sandbox's data folder. If the supervisor itself is killed,
the first process sees its own pipe close; cgroups left over by that are swept by the next run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.environments import cgroups, waiting


def main(data: Path) -> None:
    # Ctrl-C goes to the whole terminal group; the run decides when the sandbox goes.
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    cgroups.sweep()
    group = cgroups.name_for(os.getpid())
    outer, first = _make_box()
    print(json.dumps({"first": first, "cgroup": group}), flush=True)
    try:
        sys.stdin.buffer.read()
    finally:
        _end(outer)
        cgroups.remove(group)
        shutil.rmtree(data, ignore_errors=True)


def _make_box() -> tuple[subprocess.Popen[bytes], int]:
    namespaces = ["--pid", "--net", "--mount", "--mount-proc", "--ipc", "--propagation", "private"]
    inside = [sys.executable, "-I", str(Path(__file__).with_name("sandbox_init.py"))]
    outer = subprocess.Popen(
        ["unshare", *namespaces, "--fork", "--kill-child", "--", *inside],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert outer.stdout is not None
    if outer.stdout.readline() != b"ready\n":
        raise SystemExit("the sandbox did not start; see the lines above")
    return outer, child_of(outer.pid)


def child_of(pid: int) -> int:
    """The process that `unshare --fork` or `nsenter --pid` runs for us, by its id on the host."""

    def children() -> list[str]:
        if not cgroups.started(pid):
            raise RuntimeError(f"process {pid} ended before it had started anything")
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    return int(waiting.until(children, f"process {pid} has a child")[0])


def _end(outer: subprocess.Popen[bytes]) -> None:
    assert outer.stdin is not None
    outer.stdin.close()
    try:
        outer.wait(timeout=10)
    except subprocess.TimeoutExpired:
        outer.kill()
        outer.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
