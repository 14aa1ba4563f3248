"""A plane as a process: signals, exit codes and probes."""

from __future__ import annotations

import signal
import subprocess
import sys

import aiohttp
import pytest

from apportion.cluster import probes


def start(body: str) -> subprocess.Popen[str]:
    code = (
        "import asyncio, logging\n"
        "from apportion.cluster import errors, process\n"
        f"async def main():\n{body}\n"
        "process.run(main, name='plane')\n"
    )
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(number: signal.Signals) -> None:
    process = start(
        "    logging.info('ready')\n"
        "    try:\n        await asyncio.sleep(60)\n"
        "    finally:\n        logging.info('cleaned up')\n"
    )
    assert process.stderr is not None
    assert "INFO plane ready" in process.stderr.readline()
    process.send_signal(number)
    _, rest = process.communicate(timeout=10)
    assert "cleaned up" in rest
    assert "Traceback" not in rest
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("raise errors.ConfigError('no kubeconfig')", 2, "CRITICAL plane no kubeconfig"),
        ("raise errors.Unreachable('nobody there')", 1, "CRITICAL plane nobody there"),
        ("raise ExceptionGroup('g', [errors.Unreachable('nobody there')])", 1, "CRITICAL plane nobody there"),
    ],
)
def test_expected_errors_are_one_line(line: str, code: int, text: str) -> None:
    process = start(f"    {line}\n")
    _, output = process.communicate(timeout=20)
    assert process.returncode == code
    assert text in output
    assert "Traceback" not in output


async def test_r03_probes_report_the_actual_state() -> None:
    state: dict[str, bool | str] = {"ready": "informers have not synced"}
    async with (
        probes.serve("127.0.0.1:0", ready={"cache": lambda: state["ready"]}) as address,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"http://{address}/readyz") as response:
            assert response.status == 503
            assert "cache: informers have not synced" in await response.text()
        async with session.get(f"http://{address}/healthz") as response:
            assert response.status == 200
        state["ready"] = True
        async with session.get(f"http://{address}/readyz") as response:
            assert response.status == 200
        async with session.get(f"http://{address}/metrics") as response:
            assert "python_info" in await response.text()


def test_an_address_that_cannot_be_listened_on_is_named() -> None:
    assert probes.address("[::1]:80") == ("::1", 80)
    assert probes.address(":80") == ("0.0.0.0", 80)
    with pytest.raises(ValueError, match="host:port"):
        probes.address("nonsense")
