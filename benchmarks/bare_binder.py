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
from apportion.cluster.informer import Informer


async def main(prefix: str, node: str) -> None:
    """An informer, because a server may end a watch at any time."""
    async with Client.connect() as client, asyncio.TaskGroup() as binding:

        def changed(old: Bare | None, new: Bare | None) -> None:
            if old is None and new is not None and new.metadata.name.startswith(prefix):
                meta = new.metadata
                binding.create_task(client.bind(meta.namespace, meta.name, meta.uid, node))

        pods = Informer(client, PODS, namespace="default", into=Bare)
        pods.on_change(changed)
        await pods.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
