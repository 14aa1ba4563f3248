"""Scheduler and binder together, and what must be true after their work."""

from __future__ import annotations

from apportion.apis import kinds, names
from apportion.apis.installation import Installation
from apportion.cluster.client import Client
from apportion.view import readable
from tests.binder.cluster import SharingCluster
from tests.scheduler.cluster import until


async def switch_on(cluster: SharingCluster) -> None:
    body = {"metadata": {"name": names.KAI_CONFIG_OBJECT}, "spec": {"admission": {"gpuSharing": True}}}
    await cluster.client.apply(kinds.KAI_CONFIGS, body, field_manager="test")


async def nothing_left(cluster: SharingCluster) -> None:
    """No object of sharing, and whoever looks for the first time sees free GPUs."""
    await cluster.empty()
    assert not cluster.kubelet.problems, cluster.kubelet.problems

    async def no_pod_groups() -> bool:
        return not (await cluster.client.list(kinds.POD_GROUPS)).items

    await until(no_pod_groups)
    await until(lambda: gpus_are_free(cluster))


async def gpus_are_free(cluster: SharingCluster) -> bool:
    """In a view that begins now."""
    async with Client(cluster.api.wire()) as client:
        fleet = (await readable.read(client, Installation(), "default")).view.fleet
    assert set(fleet.gpu_nodes) == {gpu for gpus in cluster.gpus.values() for gpu in gpus}
    return not fleet.shares and not fleet.pod_nodes
