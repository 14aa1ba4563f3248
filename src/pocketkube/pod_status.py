"""A pod's status changed: its lists are merged, and only while it is still the same pod."""

from __future__ import annotations

from typing import Any

from apportion.apis.kinds import PODS
from apportion.cluster.client import Client, PatchType

Json = dict[str, Any]


async def merge(client: Client, pod: Json, status: Json) -> None:
    meta = pod["metadata"]
    patch = {"metadata": {"uid": meta["uid"]}, "status": status}
    await client.patch(
        PODS, meta["name"], patch, namespace=meta["namespace"], how=PatchType.strategic, subresource="status"
    )
