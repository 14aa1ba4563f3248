"""Startup, liveness and readiness probes of one container that runs.

HTTP and TCP probes go to the pod's address. Nothing listens in a simulated container: its probes succeed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from pocketkube.clock import Clock

# Before the first success a container is looked at more often than it asks for: only its start gets faster by this.
EAGER_SECONDS = 0.25
_OK = range(200, 400)
_BODY_CHARACTERS = 1_000

Check = Callable[[Mapping[str, Any]], Awaitable[str | None]]  # a probe -> None, or what is wrong


@dataclass
class ProbeReport:
    """What the probes of a container tell its pod."""

    started: Callable[[], None]
    ready: Callable[[bool], None]
    unhealthy: Callable[[str, str], None]  # kind of probe, what is wrong
    kill: Callable[[str], None]  # kind of probe


async def watch(container: Mapping[str, Any], check: Check, clock: Clock, report: ProbeReport) -> None:
    """Probe until cancelled. Without probes a container is started and ready at once."""
    startup, live, ready = (container.get(f"{kind}Probe") for kind in ("startup", "liveness", "readiness"))
    if startup is not None and not await _starts_up(startup, check, clock, report):
        return
    report.started()
    if ready is None:
        report.ready(True)  # noqa: FBT003  a callback with one obvious meaning
    async with asyncio.TaskGroup() as group:
        if live is not None:
            group.create_task(_watch_liveness(live, check, clock, report))
        if ready is not None:
            group.create_task(_watch_readiness(ready, check, clock, report))


async def _starts_up(probe: Mapping[str, Any], check: Check, clock: Clock, report: ProbeReport) -> bool:
    await clock.sleep(probe.get("initialDelaySeconds", 0))
    period, failures = _period(probe), 0
    last_counted = clock.now()
    while (problem := await check(probe)) is not None:
        if clock.now() - last_counted >= period - EAGER_SECONDS:
            last_counted = clock.now()
            failures += 1
            report.unhealthy("Startup", problem)
            if failures >= probe.get("failureThreshold", 3):
                report.kill("startup")
                return False
        await clock.sleep(min(period, EAGER_SECONDS))
    return True


async def _watch_liveness(probe: Mapping[str, Any], check: Check, clock: Clock, report: ProbeReport) -> None:
    await clock.sleep(probe.get("initialDelaySeconds", 0))
    failures = 0
    while True:
        problem = await check(probe)
        failures = 0 if problem is None else failures + 1
        if problem is not None:
            report.unhealthy("Liveness", problem)
        if failures >= probe.get("failureThreshold", 3):
            report.kill("liveness")
            return
        await clock.sleep(_period(probe))


async def _watch_readiness(probe: Mapping[str, Any], check: Check, clock: Clock, report: ProbeReport) -> None:
    await clock.sleep(probe.get("initialDelaySeconds", 0))
    run = 0  # above 0: successes in a row; below: failures
    was_ready = False
    told = clock.now()
    while True:
        problem = await check(probe)
        run = max(run, 0) + 1 if problem is None else min(run, 0) - 1
        if problem is not None and clock.now() - told >= _period(probe):
            told = clock.now()
            report.unhealthy("Readiness", problem)
        if run >= probe.get("successThreshold", 1):
            was_ready = True
            report.ready(True)  # noqa: FBT003
        elif -run >= probe.get("failureThreshold", 3):
            report.ready(False)  # noqa: FBT003
        await clock.sleep(_period(probe) if was_ready else min(_period(probe), EAGER_SECONDS))


def _period(probe: Mapping[str, Any]) -> float:
    return float(probe.get("periodSeconds", 10))


class NetworkChecks:
    """Probes over the network; one HTTP session for all pods of a node."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False  # a kubelet does not verify the certificates of its pods
        self._tls.verify_mode = ssl.CERT_NONE

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def check(self, probe: Mapping[str, Any], address: str, ports: Mapping[str, int]) -> str | None:
        seconds = float(probe.get("timeoutSeconds", 1))
        if "httpGet" in probe:
            return await self._http(probe["httpGet"], address, ports, seconds)
        if "tcpSocket" in probe:
            return await _tcp(probe["tcpSocket"], address, ports, seconds)
        return None  # grpc is taken as successful

    async def _http(
        self, target: Mapping[str, Any], address: str, ports: Mapping[str, int], seconds: float
    ) -> str | None:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls, force_close=True)
            self._session = aiohttp.ClientSession(connector=connector)
        scheme = target.get("scheme", "HTTP").lower()
        path = target.get("path") or "/"
        url = f"{scheme}://{target.get('host') or address}:{_port(target, ports)}/{path.lstrip('/')}"
        headers = {header["name"]: header["value"] for header in target.get("httpHeaders") or []}
        limit = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.get(url, headers=headers, timeout=limit, allow_redirects=False) as response:
                if response.status in _OK:
                    return None
                body = (await response.text(errors="replace"))[:_BODY_CHARACTERS]
                return f"HTTP probe failed with statuscode: {response.status}" + (f": {body}" if body else "")
        except TimeoutError:
            return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
        except aiohttp.ClientConnectorError:
            host = f"{target.get('host') or address}:{_port(target, ports)}"
            return f'Get "{url}": dial tcp {host}: connect: connection refused'
        except aiohttp.ClientError as error:
            return f'Get "{url}": {error}'


async def _tcp(target: Mapping[str, Any], address: str, ports: Mapping[str, int], seconds: float) -> str | None:
    host, port = target.get("host") or address, _port(target, ports)
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"dial tcp {host}:{port}: i/o timeout"
    except OSError:
        return f"dial tcp {host}:{port}: connect: connection refused"
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return None


def _port(target: Mapping[str, Any], ports: Mapping[str, int]) -> int:
    port = target["port"]
    return port if isinstance(port, int) else ports.get(port, 0) if not str(port).isdigit() else int(port)
