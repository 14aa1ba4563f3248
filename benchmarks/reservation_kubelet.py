"""Answers reservation pods as the kubelets of their nodes and `apportion reserve` in them would, and does nothing else.

    python -m benchmarks.reservation_kubelet

A reservation pod that appears runs at once, and then says which GPU it got: the one that it was planned on.
"""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress

from apportion.apis import names
from apportion.apis.kinds import PODS
from apportion.apis.meta import Bare, ObjectMeta
from apportion.apis.shared_gpus import is_slot
from apportion.cluster import clock, errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer

NAMESPACE = names.RESERVATION_NAMESPACE


async def main() -> None:
    async with Client.connect() as client, asyncio.TaskGroup() as answers:

        def changed(old: Bare | None, new: Bare | None) -> None:
            if old is None and new is not None and names.RESERVED_GPU not in new.metadata.annotations:
                answers.create_task(_answer(client, new.metadata))

        pods = Informer(client, PODS, namespace=NAMESPACE, into=Bare)
        following = answers.create_task(pods.run())
        await pods.synced()
        pods.on_change(changed)
        print("synced:", flush=True)
        await following


async def _answer(client: Client, meta: ObjectMeta) -> None:
    """In one write: the kubelets of pods with whole GPUs, which these are compared with, write nothing either."""
    patch = {
        "metadata": {"uid": meta.uid, "annotations": {names.RESERVED_GPU: _gpu(meta.annotations[names.PLANNED_GPU])}},
        "status": {"phase": "Running", "startTime": clock.timestamp()},
    }
    with suppress(errors.NotFound, errors.Conflict):
        await client.patch(PODS, meta.name, patch, namespace=NAMESPACE, subresource="status")


def _gpu(planned: str) -> str:
    return f"GPU-{uuid.uuid5(uuid.UUID(int=0), planned)}" if is_slot(planned) else planned


if __name__ == "__main__":
    asyncio.run(main())
