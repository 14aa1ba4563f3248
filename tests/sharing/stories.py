"""Stories of pods that share GPUs: what users do, and how each must end.

Scheduler and binder do the rest. The last GPU of the node is small, and a story may be joined at any point: whoever
was told of its beginning can finish it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from apportion.apis import kinds
from apportion.apis.shared_gpus import sharers_of
from apportion.cluster import errors
from tests.binder.cluster import MIB, OTHER, SharingCluster
from tests.binder.stand_in_kubelet import RESERVATIONS
from tests.builders import accelerators
from tests.scheduler.cluster import until
from tests.sharing.planes import nothing_left, switch_on

NODE = "n1"
MEMORY = (MIB, MIB, MIB // 4)
PODS = (("a", "default"), ("b", "default"), ("b", OTHER), ("c", "default"))


@dataclass(frozen=True)
class Story:
    """`finished` waits for the end."""

    begin: Callable[[SharingCluster], Awaitable[None]]
    finished: Callable[[SharingCluster], Awaitable[None]]


async def first(cluster: SharingCluster) -> None:
    await cluster.pod("a")


async def first_runs(cluster: SharingCluster) -> None:
    await cluster.running("a")
    await cluster.one_reservation(sharers=1)


async def join(cluster: SharingCluster) -> None:
    await cluster.pod("a")
    await cluster.pod("b", OTHER, memory=MIB // 4)
    await cluster.pod("c", fraction="0.25")


async def all_joined(cluster: SharingCluster) -> None:
    await cluster.running("a", "c")
    await cluster.running("b", namespace=OTHER)
    await until(lambda: sharers_listed(cluster, 3))


async def several(cluster: SharingCluster) -> None:
    """One pod on all GPUs, and one that joins it on two of them."""
    await cluster.pod("a", devices=3)
    await cluster.pod("b", devices=2, fraction="0.25")


async def on_several(cluster: SharingCluster) -> None:
    await cluster.running("a", "b")
    await until(lambda: sharers_listed(cluster, 5))


async def wrong_device(cluster: SharingCluster) -> None:
    """The small GPU is handed out first, and half of a large one does not fit on it."""
    cluster.kubelet.devices[NODE] = list(reversed(cluster.gpus[NODE]))
    cluster.kubelet.takes_turns = True
    await cluster.pod("a", memory=MIB // 2)
    await cluster.pod("b", fraction="0.5")


async def all_have_room(cluster: SharingCluster) -> None:
    await cluster.running("a", "b")
    await until(lambda: sharers_listed(cluster, 2))


async def gone(cluster: SharingCluster) -> None:
    """The first of two sharers is deleted before the reservation has its GPU."""
    cluster.kubelet.silent.add(NODE)
    await cluster.pod("a")
    await cluster.pod("b")


async def only_one_is_left(cluster: SharingCluster) -> None:
    if cluster.kubelet.silent:
        with suppress(errors.NotFound):  # it is gone already if the process died just after
            await cluster.get("a")
            await until(lambda: sharers_listed(cluster, 1))
            await cluster.delete("a")
        cluster.kubelet.silent.clear()
        cluster.kubelet.wake()
    await cluster.running("b")
    await cluster.one_reservation(sharers=1)


async def lost(cluster: SharingCluster) -> None:
    cluster.kubelet.reservations_may_vanish = True
    await cluster.pod("a", memory=MIB - 1000)


async def held_again(cluster: SharingCluster) -> None:
    """Once the first pod runs, its reservation is deleted by hand, and a pod comes that needs another GPU."""
    await cluster.running("a")
    try:
        await cluster.get("c")
    except errors.NotFound:
        for reservation in await cluster.reservations():
            with suppress(errors.NotFound):
                await cluster.client.delete(kinds.PODS, reservation.metadata.name, namespace=RESERVATIONS, grace=0)
        await cluster.pod("c", memory=MIB - 1000)
    await cluster.running("c")
    await until(lambda: sharers_listed(cluster, 2))


STORIES = {
    "first sharer": Story(first, first_runs),
    "join": Story(join, all_joined),
    "several devices": Story(several, on_several),
    "wrong device": Story(wrong_device, all_have_room),
    "sharer gone before bind": Story(gone, only_one_is_left),
    "lost reservation": Story(lost, held_again),
}


async def sharers_listed(cluster: SharingCluster, count: int) -> bool:
    """Whether so many sharers are on reservations, and none of these is empty."""
    found = [len(sharers_of(pod.metadata)) for pod in await cluster.reservations() if not pod.metadata.deleting]
    return sum(found) == count and all(found)


async def end(cluster: SharingCluster) -> None:
    """Every pod is checked and deleted; then nothing may be left."""
    await cluster.check()
    for name, namespace in PODS:
        with suppress(errors.NotFound):  # not every story has all of them
            await cluster.delete(name, namespace)
    await nothing_left(cluster)


async def reset(cluster: SharingCluster) -> None:
    """For the next story on the same cluster; no plane may be running."""
    cluster.kubelet.silent.clear()
    cluster.kubelet.takes_turns = False
    cluster.kubelet.reservations_may_vanish = False
    cluster.kubelet.devices[NODE].sort(key=accelerators.uuids(NODE, len(MEMORY)).index)
    await cluster.clear()
    await cluster.api.end_lease()
    await switch_on(cluster)
