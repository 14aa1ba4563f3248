"""Many pods on a complete embedded cluster with its agents, kubelets and webhooks, watched by an observer."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import yaml

from apportion.apis import kinds, names
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.installation import Installation
from apportion.apis.pods import Pod
from apportion.cluster import access, errors
from apportion.cluster.client import Client
from apportion.cluster.transport import HttpRequest, Response
from apportion.core.policies import Policy
from apportion.scheduler import main
from apportion.scheduler.settings import Settings
from apportion.view import why
from apportion.view.informers import Informers
from apportion.view.view import View
from tests.environments.waiting import until as until_now
from tests.scheduler.cluster import Wire, background, until
from tests.scheduler.observer import Observer
from tests.story.serving_cluster import ServingCluster

FULL = os.environ.get("APPORTION_SOAK") == "1"
PODS, NODES = (1000, 50) if FULL else (100, 6)
ALIVE = PODS * 6 // 10  # at most so many at a time
PATIENCE = 1800 if FULL else 240
CROWD = "crowd"
LENGTH = "length"
JSON = dict[str, Any]

POOLS = (
    ("a100", "NVIDIA A100-PCIE-40GB", ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb")),
    ("h100", "NVIDIA H100 80GB HBM3", ("1g.10gb", "2g.20gb", "3g.40gb")),
    ("a30", "NVIDIA A30", ("1g.6gb", "2g.12gb")),
)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    """Nodes of three models, each with GPUs to slice and one to give whole."""
    folder = tmp_path_factory.mktemp("crowd")
    share, rest = divmod(NODES, len(POOLS))
    pools = [
        {
            "name": name,
            "nodes": share + (number < rest),
            "cpu": "48",
            "gpus": [{"product": product, "count": 2, "mig": True}, {"product": product, "count": 1, "mig": False}],
        }
        for number, (name, product, _) in enumerate(POOLS)
    ]
    topology = folder / "topology.yaml"
    topology.write_text(yaml.safe_dump({"pools": pools}))
    options = ("--topology", str(topology), "--restart-backoff", "0.2", "--timeout", "600")
    cluster = ServingCluster(folder, *options, patience=900)
    until_now(lambda: all_agents_ready(cluster), "every node has its agent", within=900)
    yield cluster
    cluster.close()


def all_agents_ready(cluster: ServingCluster) -> bool:
    status = cluster.api.get(f"/apis/apps/v1/namespaces/{names.DAS_NAMESPACE}/daemonsets/das-daemonset")["status"]
    return bool(status.get("numberReady") == NODES)


@pytest.fixture
async def client(crowded: ServingCluster) -> AsyncIterator[Client]:
    async with crowded.client() as connected:
        await connected.create(kinds.NAMESPACES, {"metadata": {"name": CROWD}})
        yield connected
        await connected.delete(kinds.NAMESPACES, CROWD)
        await until(lambda: _vanished(connected), within=PATIENCE)


async def _vanished(client: Client) -> bool:
    with suppress(errors.NotFound):
        await client.get(kinds.NAMESPACES, CROWD)
        return False
    return True


def pod_of(number: int, dice: random.Random) -> JSON:
    kind = dice.choices(("slice", "whole", "cpu"), (7, 1, 2))[0]
    spec: JSON = {"terminationGracePeriodSeconds": 1}
    length = dice.choice(["infinity", "infinity", "2", "5"])
    command = ["sleep", length]
    if kind == "slice":
        limits = {f"{names.NVIDIA_MIG_PREFIX}{dice.choice(dice.choice(POOLS)[2])}": str(dice.choice([1, 1, 1, 2]))}
    else:
        limits = {names.NVIDIA_GPU: "1"} if kind == "whole" else {"cpu": str(dice.choice([1, 4, 12]))}
        spec["schedulerName"] = names.DAS_SCHEDULER
    container = {"name": "main", "image": "busybox", "command": command, "resources": {"limits": limits}}
    spec |= {"containers": [container], "restartPolicy": "Never"}
    return {"metadata": {"name": f"p{number:04}", "namespace": CROWD, "labels": {LENGTH: length}}, "spec": spec}


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_s06_x04_a_crowd_comes_and_goes_and_nothing_is_sold_twice(client: Client) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    dice = random.Random(seed)
    alive: list[str] = []
    async with Observer(client).watching() as observer:
        for number in range(PODS):
            body = pod_of(number, dice)
            await client.create(kinds.PODS, body)
            alive.append(body["metadata"]["name"])
            while len(alive) > ALIVE or (alive and dice.random() < 0.2):
                name = alive.pop(dice.randrange(len(alive)))
                with suppress(errors.NotFound):
                    await client.delete(kinds.PODS, name, namespace=CROWD, grace=dice.choice([0, 1]))
            if dice.random() < 0.1:
                await asyncio.sleep(dice.uniform(0, 0.5))
        await until(lambda: at_rest(client), within=PATIENCE)
        print(f"{PODS} pods on {NODES} nodes: {dict(observer.seen)}")
        assert observer.seen["bindings"] > PODS // 4


async def at_rest(client: Client) -> bool:
    """Every pod has ended, runs, or was told why it waits; nothing that waits would fit."""
    pods = (await client.list(kinds.PODS, namespace=CROWD, into=Pod)).items
    for pod in pods:
        if pod.metadata.deleting or (pod.spec.node_name and pod.status.phase == "Pending"):
            return False
        if pod.status.phase == "Running" and pod.metadata.labels[LENGTH] != "infinity":
            return False
    claims = (await client.list(kinds.ALLOCATION_CLAIMS, namespace=names.DAS_NAMESPACE)).items
    live = {pod.metadata.uid for pod in pods if not pod.terminal}
    if any(claim["spec"]["podRef"]["uid"] not in live for claim in claims):
        return False
    return all(answer.state is why.PodState.WAITING and answer.told for answer in await pending(client))


async def pending(client: Client) -> list[why.Answer]:
    """What the core says about each pod that waits, on a fresh look at the cluster."""
    view = View()
    await Informers(client, view, Installation()).load()
    waiting = [pod for pod in view.pods if pod.metadata.namespace == CROWD and not pod.spec.node_name]
    return [why.answer(view, pod, Policy()) for pod in waiting if not pod.metadata.deleting]


ROUNDS = 30 if FULL else 2
REPLICAS = 16
LATE_SECONDS = 2.0


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_s06_of_two_schedulers_that_both_lead_the_agent_lets_one_win(
    crowded: ServingCluster, client: Client
) -> None:
    async with two_leaders(crowded, client), Observer(client, strictly=False).watching() as observer:
        for number in range(ROUNDS):
            name = f"both-{number}"
            await client.create(kinds.DEPLOYMENTS, deployment(name))
            try:
                await until(partial(settled, client), within=PATIENCE)
            except AssertionError as error:
                error.add_note(await state_of(client))
                raise
            await client.delete(kinds.DEPLOYMENTS, name, namespace=CROWD)
            await until(partial(no_claims, client), within=PATIENCE)
        print(f"{ROUNDS} rounds, {len(observer.contested)} pairs of claims on one place: {dict(observer.seen)}")
        assert observer.contested, "the two never met: this test tests nothing"


@asynccontextmanager
async def two_leaders(cluster: ServingCluster, client: Client) -> AsyncIterator[None]:
    """The cluster's scheduler stands by; two others lead, each sure of itself and slow to see what the other does.

    Each is quick with one half of the pods and slow with the other, so that both place pods at the same time.
    """
    usurped = {"spec": {"holderIdentity": "first", "leaseDurationSeconds": 15}}
    await client.patch(kinds.LEASES, names.SCHEDULER_LEASE, usurped, namespace=names.DAS_NAMESPACE)
    leases = {"first": names.SCHEDULER_LEASE, "second": "rival"}
    tastes = ("fragmentation", "first-fit")  # with one taste both would choose the same place for the same pod
    async with AsyncExitStack() as stack:
        for number, (identity, lease) in enumerate(leases.items()):
            wire = Wire(access.from_kubeconfig(cluster.kubeconfig), partial(_late, number))
            settings = Settings(probes="127.0.0.1:0", lease_name=lease, identity=identity, policy=tastes[number])
            await stack.enter_async_context(background(main.run(settings, Client(wire))))
        await until(partial(_led_by, client, leases), within=120)
        yield


async def _led_by(client: Client, leases: dict[str, str]) -> bool:
    for identity, name in leases.items():
        with suppress(errors.NotFound):
            lease = await client.get(kinds.LEASES, name, namespace=names.DAS_NAMESPACE)
            if lease["spec"].get("holderIdentity") == identity:
                continue
        return False
    return True


async def _late(half: int, request: HttpRequest, onwards: Callable[[], Awaitable[Response]]) -> Response:
    claims = request.path.endswith("/allocationclaims")
    if claims and request.method == "POST":
        pod = json.loads(request.body or b"{}")["spec"]["podRef"]["uid"]
        if int(pod[0], 16) % 2 != half:
            await asyncio.sleep(LATE_SECONDS)
    response = await onwards()
    if claims and response.stream is not None:
        response.stream = _delayed(response.stream)
    return response


async def _delayed(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    async def read() -> None:
        async for chunk in stream:
            chunks.put_nowait((loop.time() + LATE_SECONDS, chunk))

    async with background(read()):
        while True:
            due, chunk = await chunks.get()
            await asyncio.sleep(due - loop.time())
            yield chunk


def deployment(name: str) -> JSON:
    labels = {"app": name}
    limits = {f"{names.NVIDIA_MIG_PREFIX}1g.5gb": "1"}
    container = {"name": "main", "image": "busybox", "command": ["sleep", "infinity"], "resources": {"limits": limits}}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name, "namespace": CROWD}, "spec": spec}


async def settled(client: Client) -> bool:
    """Each pod runs, with one claim in use on its own node and on a place of its own."""
    pods = (await client.list(kinds.PODS, namespace=CROWD, into=Pod)).items
    live = {pod.metadata.uid: pod.spec.node_name for pod in pods if pod.ready and not pod.metadata.deleting}
    claims = (await client.list(kinds.ALLOCATION_CLAIMS, namespace=names.DAS_NAMESPACE, into=AllocationClaim)).items
    held = {claim.spec.pod_ref.uid: claim.spec.nodename for claim in claims if claim.state == "inUse"}
    places = {(claim.spec.gpu_uuid, claim.spec.mig_placement.start) for claim in claims}
    return held == live and len(claims) == len(live) == len(places) == REPLICAS


async def state_of(client: Client) -> str:
    """For the report of a failure."""
    pods = (await client.list(kinds.PODS, namespace=CROWD)).items
    claims = (await client.list(kinds.ALLOCATION_CLAIMS, namespace=names.DAS_NAMESPACE)).items
    lines = [f"{p['metadata']['name']} {p['spec'].get('nodeName')} {p['status']}" for p in pods]
    lines += [f"{c['metadata']['name']} {c['spec']} {c.get('status')}" for c in claims]
    return "\n".join(lines)


async def no_claims(client: Client) -> bool:
    return not (await client.list(kinds.ALLOCATION_CLAIMS, namespace=names.DAS_NAMESPACE)).items
