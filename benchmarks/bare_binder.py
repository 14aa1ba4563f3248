"""Binds pods at once, without looking at nodes or pods: what the API server alone costs.

    python -m benchmarks.bare_binder PREFIX NODE

Every pod in `default` whose name begins with PREFIX is bound to NODE as soon as it is seen.
"""

from __future__ import annotations

import asyncio
import sys

from apportion.apis.kinds import PODS
from apportion.apis.meta import Bare
from apportion.cluster.client import Client


async def main(prefix: str, node: str) -> None:
    async with Client.connect() as client:
        async for event in client.watch(PODS, namespace="default", into=Bare):
            if event.type == "ADDED" and event.object is not None and event.object.metadata.name.startswith(prefix):
                meta = event.object.metadata
                await client.bind(meta.namespace, meta.name, meta.uid, node)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
