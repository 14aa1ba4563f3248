"""What a simulated container's command prints, and how it ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from pocketkube.kubelet.container_files import ContainerFiles, Mount
from pocketkube.kubelet.shell.files import Files
from pocketkube.kubelet.shell.limits import Allowance
from pocketkube.kubelet.shell.running import Shell
from pocketkube.kubelet.shell.streams import Streams


class LocalClock:
    async def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def run(tmp_path: Path, *argv: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    out: list[str] = []

    async def keep(text: str) -> None:
        out.append(text)

    async def forever() -> int:
        out.append("<forever>")
        return 0

    volume = tmp_path / "volume"
    volume.mkdir(exist_ok=True)
    (volume / "note").write_text("one\ntwo\n")
    allowance = Allowance()
    files = Files(ContainerFiles(tmp_path / "root", {"/etc/app": Mount(volume)}), allowance)
    variables = {"A": "1", "B": "x y", **(env or {})}
    shell = Shell(env=variables, files=files, clock=LocalClock(), forever=forever, allowance=allowance)
    async with asyncio.timeout(30):
        code = await shell.command(list(argv), Streams(out=keep, err=keep))
    return code, "".join(out)


@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        ("echo hello", 0, "hello\n"),
        ("echo -n a; echo b", 0, "ab\n"),
        ("true && echo yes || echo no", 0, "yes\n"),
        ("false && echo yes || echo no", 0, "no\n"),
        ("exit 3; echo never", 3, ""),
        ("false", 1, ""),
        ("! false", 0, ""),
        ("env | grep ^A=", 0, "A=1\n"),
        ("printenv A", 0, "1\n"),
        ("printenv MISSING", 1, ""),
        ("echo $B", 0, "x y\n"),
        ("echo '$B' \"$B\" ${C:-none}", 0, "$B x y none\n"),
        ("X=5; echo $X-$((X + 2 * 3))", 0, "5-11\n"),
        ("for i in 1 2 $B; do echo -n $i; done", 0, "12xy"),
        ("i=0; while [ $i -lt 3 ]; do i=$((i+1)); echo $i; done", 0, "1\n2\n3\n"),
        ("until true; do echo x; done; echo end", 0, "end\n"),
        ("if [ -f /etc/app/note ]; then cat /etc/app/note; else echo none; fi", 0, "one\ntwo\n"),
        ("if false; then echo a; elif true; then echo b; fi", 0, "b\n"),
        ("echo $(echo in; echo out)", 0, "in out\n"),
        ("echo one > /tmp/f; echo two >> /tmp/f; cat /tmp/f | wc -l", 0, "2\n"),
        ("echo x > /dev/null; echo err >&2", 0, "err\n"),
        ("seq 5 | head -n 2 | sort -r", 0, "2\n1\n"),
        ("cat /missing", 1, "cat: /missing: No such file or directory\n"),
        ("set -e; false; echo never", 1, ""),
        ("set -e; false || true; echo on", 0, "on\n"),
        ("{ echo a; echo b; } | grep b", 0, "b\n"),
        ("sleep 0.01 & wait; echo done", 0, "done\n"),
        ("python train.py; echo done", 0, "done\n"),
        ("echo start; python train.py", 0, "start\n<forever>"),
        ("exec sh -c 'exit 7'", 7, ""),
        ("timeout 0.05 sleep 10; echo $?", 0, "124\n"),
        ("# only a comment\necho two\\\n lines\n", 0, "two lines\n"),
    ],
)
async def test_scripts(tmp_path: Path, script: str, code: int, text: str) -> None:
    assert await run(tmp_path, "sh", "-c", script) == (code, text)


async def test_a_command_without_a_shell(tmp_path: Path) -> None:
    assert await run(tmp_path, "echo", "$A", "b") == (0, "$A b\n")
    assert await run(tmp_path, "/bin/sleep", "0.01") == (0, "")
    assert await run(tmp_path, "python", "train.py") == (0, "<forever>")
    assert await run(tmp_path, "sh") == (0, "")


@pytest.mark.parametrize("script", ["echo 'open", 'echo "open', "while true; do echo", "if true", "| x", "echo $(open"])
async def test_a_script_that_is_none_ends_with_a_message(tmp_path: Path, script: str) -> None:
    code, text = await run(tmp_path, "sh", "-c", script)
    assert code == 2
    assert text.startswith("sh: ")


async def test_files_cannot_leave_the_container(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("no")
    code, text = await run(tmp_path, "cat", "../../secret")
    assert (code, "no" in text.split()) == (1, False)
