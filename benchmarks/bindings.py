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

BOUND = "spec.nodeName!="


async def main(kubeconfig: str, count: int) -> None:
    async with Client.from_kubeconfig(kubeconfig) as client:
        listing = await client.list(PODS, namespace="default", fields=BOUND, into=Bare)
        seen: set[str] = set()
        first = 0.0
        print("watching", flush=True)
        watch = client.watch(
            PODS, namespace="default", fields=BOUND, resource_version=listing.resource_version, into=Bare
        )
        async for event in watch:
            if event.type != "ADDED" or event.object is None:
                continue
            seen.add(event.object.metadata.uid)
            first = first or time.monotonic()
            if len(seen) == count:
                print(json.dumps({"first": first, "last": time.monotonic()}), flush=True)
                return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
