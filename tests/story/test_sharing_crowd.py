"""Many pods that share GPUs, created at once on an embedded cluster with all its planes, then deleted at once.

Most nodes have no agent and no device plugin of ours: their GPUs are what their kubelets offer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import yaml

from apportion.apis import kinds, names, shared_gpus
from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from tests.scheduler.cluster import background, until
from tests.story.serving_cluster import ServingCluster

FULL = os.environ.get("APPORTION_SOAK") == "1"
GPUS = 500 if FULL else 40
PER_NODE = 8
ROUNDS = 10 if FULL else 1
AT_ONCE = 64
PATIENCE = 900 if FULL else 240
KILL_SECONDS = (2.0, 10.0) if FULL else (0.3, 2.0)  # a lease of 15 s is not taken over any faster
MOST_RESTARTS = 4
CROWD = "crowd"
MEMORY_MIB = 40960
SHARING, RESERVATIONS = names.KAI_NAMESPACE, names.RESERVATION_NAMESPACE
Json = dict[str, Any]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    folder = tmp_path_factory.mktemp("sharing-crowd")
    nodes, rest = divmod(GPUS, PER_NODE)
    pools: list[Json] = [{"name": "planes", "gpus": [{"product": "NVIDIA A100-PCIE-40GB", "count": 1, "mig": True}]}]
    for name, count, gpus in (("shared", nodes, PER_NODE), ("last", 1, rest)):
        if count and gpus:
            pools.append(
                {
                    "name": name,
                    "nodes": count,
                    "light": True,
                    "labels": {names.GPU_MEMORY_LABEL: str(MEMORY_MIB)},
                    "resources": {names.NVIDIA_GPU: str(gpus)},
                    "taints": [{"key": "shares", "value": "only", "effect": "NoSchedule"}],
                }
            )
    topology = folder / "topology.yaml"
    topology.write_text(yaml.safe_dump({"pools": pools, "sharing": True}))
    cluster = ServingCluster(folder, "--topology", str(topology), "--restart-backoff", "0.2", patience=120)
    yield cluster
    cluster.close()


@pytest.fixture
async def client(crowded: ServingCluster) -> AsyncIterator[Client]:
    async with crowded.client() as connected:
        with suppress(errors.AlreadyExists):
            await connected.create(kinds.NAMESPACES, {"metadata": {"name": CROWD}})
        yield connected


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_g11_a_crowd_shares_all_gpus_and_leaves_nothing(client: Client) -> None:
    async with Observer(client).watching():
        for number in range(ROUNDS):
            await come(client)
            await all_run(client)
            await each_has_the_gpu_of_its_reservation(client)
            await go(client)
            print(f"round {number + 1}: {2 * GPUS} pods on {GPUS} GPUs")


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_g11_a_crowd_survives_kills_and_lost_reservations(crowded: ServingCluster, client: Client) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    dice = random.Random(seed)
    async with Observer(client).watching():
        for number in range(ROUNDS):
            async with killing(crowded, dice) as killed:
                await come(client)
                await all_run(client)
            await lose_reservations(client, dice)
            async with killing(crowded, dice) as killed_again:
                await go(client)
            print(f"round {number + 1}: killed {dict(killed + killed_again)}")


async def come(client: Client) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def create(number: int) -> None:
        async with slots:
            await until(lambda: created(client, pod(number)), within=PATIENCE)

    await asyncio.gather(*(create(number) for number in range(2 * GPUS)))


async def created(client: Client, body: Json) -> bool:
    try:
        await client.create(kinds.PODS, body)
    except errors.AlreadyExists:
        return True
    except errors.ClusterError:  # no replica of the webhook was ready
        return False
    return True


def pod(number: int) -> Json:
    container = {"name": "main", "image": "busybox", "command": ["sleep", "infinity"]}
    toleration = {"key": "shares", "operator": "Exists"}
    return {
        "metadata": {"name": f"half-{number}", "namespace": CROWD, "annotations": {names.GPU_FRACTION: "0.5"}},
        "spec": {
            "schedulerName": names.KAI_SCHEDULER,
            "containers": [container],
            "tolerations": [toleration],
            "terminationGracePeriodSeconds": 1,
        },
    }


async def pods_of(client: Client, namespace: str) -> list[Pod]:
    return list((await client.list(kinds.PODS, namespace=namespace, into=Pod)).items)


async def all_run(client: Client) -> None:
    phases: Counter[str] = Counter()

    async def running() -> bool:
        phases.clear()
        phases.update(each.status.phase for each in await pods_of(client, CROWD))
        return phases == {"Running": 2 * GPUS}

    try:
        await until(running, within=PATIENCE)
    except AssertionError as error:
        error.add_note(f"{dict(phases)}")
        waiting = [each for each in await pods_of(client, CROWD) if each.status.phase != "Running"]
        for each in waiting[:3]:
            error.add_note(f"{each.metadata.name}: {[entry.message for entry in each.status.conditions]}")
        raise


async def each_has_the_gpu_of_its_reservation(client: Client) -> None:
    reservations = await pods_of(client, RESERVATIONS)
    assert len(reservations) == GPUS
    gpus = {each.metadata.labels[names.GPU_GROUP_LABEL]: each for each in reservations}
    assert len({each.metadata.annotations[names.RESERVED_GPU] for each in reservations}) == GPUS
    sharers: Counter[str] = Counter()
    config_maps = {
        item["metadata"]["ownerReferences"][0]["uid"]: item["data"]
        for item in (await client.list(kinds.CONFIG_MAPS, namespace=CROWD)).items
        if item["metadata"].get("ownerReferences")
    }
    for each in await pods_of(client, CROWD):
        (group,) = shared_gpus.groups_of(each.metadata)
        reservation = gpus[group]
        sharers[group] += 1
        data = config_maps[each.metadata.uid]
        assert data[names.VISIBLE_DEVICES] == reservation.metadata.annotations[names.RESERVED_GPU]
        assert data[names.GPU_PORTION] == "0.5"
        assert reservation.spec.node_name == each.spec.node_name
        assert PodUID(each.metadata.uid) in shared_gpus.sharers_of(reservation.metadata)
    assert set(sharers.values()) == {2}


async def go(client: Client) -> None:
    """Everybody is deleted, and nothing is left."""
    await client.raw("DELETE", kinds.PODS.path(namespace=CROWD))
    left: dict[str, int] = {}

    async def empty() -> bool:
        left["pods"] = len(await pods_of(client, CROWD))
        left["reservations"] = len(await pods_of(client, RESERVATIONS))
        left["bind requests"] = len((await client.list(kinds.BIND_REQUESTS)).items)
        config_maps = (await client.list(kinds.CONFIG_MAPS, namespace=CROWD)).items
        left["config maps"] = sum("shared-gpu" in item["metadata"]["name"] for item in config_maps)
        return not any(left.values())

    try:
        await until(empty, within=PATIENCE)
    except AssertionError as error:
        error.add_note(json.dumps(left))
        raise


async def lose_reservations(client: Client, dice: random.Random) -> None:
    """Somebody deletes reservation pods by hand: they are made again, and nobody who runs is affected."""
    before = {each.metadata.uid for each in await pods_of(client, CROWD)}
    reservations = await pods_of(client, RESERVATIONS)
    lost = dice.sample(reservations, max(1, GPUS // 10))
    for each in lost:
        with suppress(errors.NotFound):
            await client.delete(kinds.PODS, each.metadata.name, namespace=RESERVATIONS, uid=each.metadata.uid)

    async def again() -> bool:
        found = await pods_of(client, RESERVATIONS)
        groups = {
            shared_gpus.groups_of(each.metadata) for each in found if names.RESERVED_GPU in each.metadata.annotations
        }
        return (
            len(found) == GPUS
            and len(groups) == GPUS
            and not {each.metadata.uid for each in lost} & {each.metadata.uid for each in found}
        )

    await until(again, within=PATIENCE)
    after = await pods_of(client, CROWD)
    assert {each.metadata.uid for each in after} == before
    assert all(each.status.phase == "Running" for each in after)


@asynccontextmanager
async def killing(cluster: ServingCluster, dice: random.Random) -> AsyncIterator[Counter[str]]:
    """Kill a process of binder or scheduler now and then."""
    killed: Counter[str] = Counter()

    async def work() -> None:
        while True:
            await asyncio.sleep(dice.uniform(*KILL_SECONDS))
            killed.update(await asyncio.to_thread(kill_one, cluster, dice))

    async with background(work()):
        yield killed


def kill_one(cluster: ServingCluster, dice: random.Random) -> list[str]:
    """A pod that was hit often is replaced, because the kubelet lets it wait longer and longer."""
    name, pid = dice.choice(processes(cluster) or [("", 0)])
    if not pid:
        return []
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    for each in planes(cluster):
        meta, status = each["metadata"], each.get("status", {})
        restarts = [container["restartCount"] for container in status.get("containerStatuses", [])]
        if restarts and max(restarts) >= MOST_RESTARTS:
            cluster.api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", {"gracePeriodSeconds": 0})
    return [name]


def planes(cluster: ServingCluster) -> list[Json]:
    return [
        *cluster.api.items(f"/api/v1/namespaces/{SHARING}/pods"),
        *cluster.api.items(f"/api/v1/namespaces/{names.DAS_NAMESPACE}/pods?labelSelector=app%3Ddas-scheduler"),
    ]


def processes(cluster: ServingCluster) -> list[tuple[str, int]]:
    return [
        (each["metadata"]["labels"]["app"], int(pid))
        for each in planes(cluster)
        for file in cluster.nodes_dir.glob(f"*/sys/fs/cgroup/kubepods/pod{each['metadata']['uid']}/*/cgroup.procs")
        for pid in file.read_text().split()
    ]


class Observer:
    """Adds up, after every change of a pod, what the bound pods have of each GPU."""

    def __init__(self, client: Client) -> None:
        self._informer = Informer(client, kinds.PODS, into=Pod, namespace=CROWD)
        self._informer.on_change(self._changed)
        self._held: dict[str, dict[str, int]] = {}
        self.problems: list[str] = []

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        async with background(self._informer.run()):
            await self._informer.synced()
            yield
        assert not self.problems, self.problems[:5]

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        assert subject is not None
        for gpu in shared_gpus.shared_gpus_of(subject.metadata):
            held = self._held.setdefault(gpu.uuid or gpu.device, {})
            if new is None or new.terminal:
                held.pop(subject.metadata.uid, None)
                continue
            held[subject.metadata.uid] = gpu.mib
            if sum(held.values()) > MEMORY_MIB:
                self.problems.append(f"GPU {gpu.uuid or gpu.device}: {held}")
        if old is not None and new is None and not old.metadata.deleting:
            self.problems.append(f"pod {subject.metadata.name} vanished")
