"""Watches pods get their node, apart from everybody else, and says when the first and the last did.

    python -m benchmarks.bindings KUBECONFIG COUNT

Prints `watching` once the watch stands, then one line of JSON when COUNT pods in `default` have been bound.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from apportion.apis.kinds import PODS
from apportion.apis.meta import Bare
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer

BOUND = "spec.nodeName!="
PATIENCE_SECONDS = 600.0


async def main(kubeconfig: str, count: int) -> None:
    """An informer, because a server ends the watch of a reader that does not keep up."""
    seen: dict[str, float] = {}  # by uid
    complete = asyncio.Event()

    def changed(_: Bare | None, new: Bare | None) -> None:
        if new is not None:
            seen.setdefault(new.metadata.uid, time.monotonic())
            if len(seen) == count:
                complete.set()

    async with Client.from_kubeconfig(kubeconfig) as client:
        pods = Informer(client, PODS, namespace="default", fields=BOUND, into=Bare)
        following = asyncio.create_task(pods.run())
        await pods.synced()
        pods.on_change(changed)
        print("watching", flush=True)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await complete.wait()
        except TimeoutError:
            raise SystemExit(f"{len(seen)} of {count} pods were bound within {PATIENCE_SECONDS:.0f} s") from None
        print(json.dumps({"first": min(seen.values()), "last": max(seen.values())}), flush=True)
        following.cancel()
        await asyncio.wait({following})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
