"""The webhook as a process of its own that can be killed at its n-th call of the API.

`python -m tests.admission.fallback.killable_webhook --die-at 7 --after ...`: the process is gone, as if killed, right
before the call leaves or right after the server has acted on it and before anybody here knows.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
from pathlib import Path

from apportion.admission.fallback.decision_rounds import Patience
from apportion.admission.main import FALLBACK, Settings, Webhook
from apportion.admission.server import Limits
from apportion.apis.installation import Installation
from apportion.cluster import access, process
from apportion.cluster.client import Client
from apportion.cluster.transport import HttpRequest, Response, Transport

DEATH = 9


class KillableTransport:
    """A transport that ends the process at the n-th call."""

    def __init__(self, inner: Transport, die_at: int, *, after: bool) -> None:
        self._inner = inner
        self._die_at = die_at
        self._after = after
        self._calls = itertools.count(1)

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        fatal = next(self._calls) == self._die_at
        if fatal and not self._after:
            os._exit(DEATH)
        response = await self._inner.send(request, stream=stream, timeout=timeout)
        if fatal:
            os._exit(DEATH)
        return response

    async def close(self) -> None:
        await self._inner.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--lifetime", type=float, default=30.0)
    parser.add_argument("--die-at", type=int, default=0)
    parser.add_argument("--after", action="store_true")
    parser.add_argument("--client-ca", type=Path)
    parser.add_argument("--serve", default=FALLBACK)
    given = parser.parse_args()
    settings = Settings(
        listen=given.listen,
        probes="127.0.0.1:0",
        serve=tuple(given.serve.split(",")),
        namespace=Installation.fallback_namespace,
        service=Installation.fallback_service,
        secret=Installation.fallback_secret,
        client_ca=given.client_ca,
        patience=Patience(lifetime=given.lifetime),
        limits=Limits(drain_seconds=0.5),
    )

    async def run() -> None:
        transport: Transport = access.connect()
        if given.die_at:
            transport = KillableTransport(transport, given.die_at, after=given.after)
        async with Client(transport) as client, asyncio.TaskGroup() as tasks:
            webhook = Webhook(client, settings)
            tasks.create_task(webhook.run())
            await webhook.bound
            while webhook.ready() is not True:  # noqa: ASYNC110  a test's own loop
                await asyncio.sleep(0.02)
            print(f"ready {webhook.bound.result()[0]}", flush=True)

    process.run(run, name="webhook", level="Normal")


if __name__ == "__main__":
    main()
