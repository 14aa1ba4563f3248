"""A cluster for scheduler tests: the embedded API on a loopback socket, nodes, and agents that only free.

No kubelet runs here: a bound pod stays Pending, which is all that a scheduler can see of success anyway.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from apportion.apis import kinds, names
from apportion.apis.custom_resources import crds
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.meta import Bare
from apportion.apis.pods import Pod
from apportion.cluster import access, errors
from apportion.cluster.client import Client, PatchType
from apportion.cluster.transport import HttpRequest, Response, Transport
from apportion.scheduler import main
from apportion.scheduler.settings import Settings
from pocketkube.api import initial_objects
from pocketkube.api.http import HttpShell
from pocketkube.api.request_attributes import ADMIN
from pocketkube.api.server import ApiServer
from tests.builders import accelerators, nodes, pods
from tests.builders.accelerators import A100

JSON = dict[str, Any]
TOKEN = "admin"
NAMESPACE = names.DAS_NAMESPACE
Fault = Callable[[HttpRequest, Callable[[], Awaitable[Response]]], Awaitable[Response]]


class Wire:
    """A connection with injected faults: each request passes through `fault` if one is set."""

    def __init__(self, transport: Transport, fault: Fault | None = None) -> None:
        self._transport = transport
        self.fault = fault

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        async def onwards() -> Response:
            return await self._transport.send(request, stream=stream, timeout=timeout)

        if self.fault is None:
            return await onwards()
        return await self.fault(request, onwards)

    async def close(self) -> None:
        await self._transport.close()


@dataclass
class ApiCluster:
    """What a test talks to."""

    connect: Callable[[], Transport]
    client: Client
    kubeconfig: Path  # for processes of their own
    agents: set[str] = field(default_factory=set)  # nodes whose agent frees slices
    gpus: dict[str, list[str]] = field(default_factory=dict)

    async def node(
        self,
        name: str,
        *,
        gpus: int = 2,
        mig: int | None = None,
        product: str = A100,
        agent: bool = True,
        resources: Mapping[str, str] | None = None,
    ) -> None:
        """A node with GPUs, the first `mig` of them in MIG mode (all if not said), and its agent."""
        mig = gpus if mig is None else mig
        node = nodes.node(name, resources={**nodes.slice_devices(mig, product=product), **(resources or {})})
        await self.client.create(kinds.NODES, {"metadata": node["metadata"]})
        await self.client.patch(kinds.NODES, name, {"status": node["status"]}, subresource="status")
        pod = await self.agent_pod(name, ready=agent)
        self.gpus[name] = accelerators.uuids(name, gpus)
        listed = [
            accelerators.gpu(device, product=product, mig=number < mig) for number, device in enumerate(self.gpus[name])
        ]
        made = accelerators.accelerator(name, listed, agent_uid=pod["metadata"]["uid"])
        await self.client.create(kinds.NODE_ACCELERATORS, {key: made[key] for key in ("metadata", "spec")})
        await self.client.patch(
            kinds.NODE_ACCELERATORS, name, {"status": made["status"]}, namespace=NAMESPACE, subresource="status"
        )
        if agent:
            self.agents.add(name)

    def wire(self, fault: Fault | None = None) -> Wire:
        return Wire(self.connect(), fault)

    async def agent_pod(self, node: str, *, ready: bool) -> JSON:
        made = await self.client.create(kinds.PODS, accelerators.agent_pod(node))
        await self.agent_ready(node, ready=ready)
        return made

    async def agent_ready(self, node: str, *, ready: bool) -> None:
        await self.client.patch(
            kinds.PODS,
            accelerators.agent_name(node),
            {"status": accelerators.agent_status(ready=ready)},
            namespace=NAMESPACE,
            how=PatchType.strategic,
            subresource="status",
        )

    async def pod(self, name: str, *, priority: int | None = None, **options: Any) -> str:
        """Create a pod and give back its uid."""
        if priority is not None:
            options["priorityClassName"] = f"p{priority}"
            with suppress(errors.AlreadyExists):
                await self.client.create(
                    kinds.PRIORITY_CLASSES, {"metadata": {"name": f"p{priority}"}, "value": priority}
                )

        async def created() -> str | None:
            try:
                made = await self.client.create(kinds.PODS, pods.our_pod(name, **options))
            except errors.Forbidden as error:
                if "no PriorityClass" not in str(error):
                    raise
                return None  # kube-apiserver reads its own classes a moment late
            uid: str = made["metadata"]["uid"]
            return uid

        return await until(created)

    async def get(self, name: str, namespace: str = "default") -> Pod:
        return await self.client.get(kinds.PODS, name, namespace=namespace, into=Pod)

    async def delete(self, name: str) -> None:
        await self.client.delete(kinds.PODS, name, namespace="default", grace=0)

    async def set_phase(self, name: str, phase: str) -> None:
        await self.client.patch(
            kinds.PODS, name, {"status": {"phase": phase}}, namespace="default", subresource="status"
        )

    async def claims(self) -> list[AllocationClaim]:
        listing = await self.client.list(kinds.ALLOCATION_CLAIMS, namespace=NAMESPACE, into=AllocationClaim)
        return sorted(listing.items, key=lambda claim: claim.name)

    async def bound(self, *pods: str, within: float = 40) -> dict[str, str]:
        """Wait until these pods have nodes, and say which."""

        async def nodes() -> dict[str, str] | None:
            found = {name: (await self.get(name)).spec.node_name for name in pods}
            return found if all(found.values()) else None

        return await until(nodes, within=within)

    async def waits(self, name: str, within: float = 40) -> str:
        """Wait until the pod's condition says why it has no node, and give back the sentence."""

        async def sentence() -> str | None:
            pod = await self.get(name)
            assert not pod.spec.node_name, f"{name} was placed"
            said = [c for c in pod.status.conditions if c.type == "PodScheduled" and c.reason == "Unschedulable"]
            return said[0].message if said else None

        return await until(sentence, within=within)

    async def end_lease(self) -> None:
        """What time does to the lease of a leader that died or is cut off."""
        ended = {"spec": {"holderIdentity": ""}}
        with suppress(errors.NotFound):
            await self.client.patch(kinds.LEASES, names.SCHEDULER_LEASE, ended, namespace=NAMESPACE)

    async def no_overlap(self) -> None:
        seen: dict[tuple[str, int], str] = {}
        for claim in await self.claims():
            place = claim.spec.mig_placement
            for unit in range(place.start, place.start + place.size):
                other = seen.setdefault((claim.spec.gpu_uuid, unit), claim.name)
                assert other == claim.name, f"{other} and {claim.name} overlap"

    async def knows_our_kinds(self) -> bool:
        try:
            for definition in crds.DEFINITIONS:
                await self.client.list(definition.kind)
        except errors.NotFound:
            return False
        return True

    async def _remove(self, kind: kinds.Kind, item: Bare) -> None:
        namespace = item.metadata.namespace or None
        with suppress(errors.NotFound):
            await self.client.delete(kind, item.metadata.name, namespace=namespace, grace=0)

    async def clear(self) -> None:
        for claim in await self.claims():
            with suppress(errors.NotFound):
                await self.client.patch(
                    kinds.ALLOCATION_CLAIMS, claim.name, {"metadata": {"finalizers": None}}, namespace=NAMESPACE
                )
        ours = (kinds.ALLOCATION_CLAIMS, kinds.NODE_ACCELERATORS, kinds.QUEUES, kinds.POD_GROUPS)
        for kind in (*ours, kinds.NODES, kinds.PODS, kinds.LEASES):
            with suppress(errors.NotFound):  # the kind itself, in tests of older installations
                for item in (await self.client.list(kind, into=Bare)).items:
                    if item.metadata.namespace in {"", "default", NAMESPACE}:
                        await self._remove(kind, item)
        await self.client.raw("DELETE", kinds.EVENTS.path(namespace="default"))

    async def free_slices(self) -> None:
        """What agents do, over and over: free what no live pod uses, then take the finalizer off."""
        while True:
            with suppress(errors.ClusterError):
                claims = await self.claims()  # before the pods: a pod is older than its claims
                pods = await self.client.list(kinds.PODS, into=Pod)
                live = {pod.metadata.uid for pod in pods.items if not pod.terminal}
                for claim in claims:
                    if claim.spec.nodename in self.agents:
                        await self._free(claim, live)
            await asyncio.sleep(0.02)

    async def _free(self, claim: AllocationClaim, live: set[str]) -> None:
        uid = claim.spec.pod_ref.uid
        if uid in live and not claim.metadata.deleting:
            return
        if not claim.metadata.deleting:
            if claim.state == "created" and uid not in live and await self._never_bound(claim):
                return  # the leader's business
            await self.client.delete(kinds.ALLOCATION_CLAIMS, claim.name, namespace=NAMESPACE)
        await self.client.patch(
            kinds.ALLOCATION_CLAIMS, claim.name, {"metadata": {"finalizers": None}}, namespace=NAMESPACE
        )

    async def _never_bound(self, claim: AllocationClaim) -> bool:
        return claim.spec.pod_ref.name.startswith("ghost")


@asynccontextmanager
async def embedded() -> AsyncIterator[ApiCluster]:
    """On the embedded API, over a socket."""
    server = ApiServer()
    server.tokens.add_fixed(TOKEN, ADMIN)
    await initial_objects.prepare(server)
    shell = HttpShell(server, None)
    await shell.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with prepared(_kubeconfig(Path(folder), f"http://127.0.0.1:{shell.port}")) as made:
                yield made
    finally:
        await shell.stop()


def _kubeconfig(folder: Path, url: str) -> Path:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def prepared(kubeconfig: Path) -> AsyncIterator[ApiCluster]:
    """Our kinds, our namespace, and agents on whatever nodes a test makes; all gone again afterwards."""

    def connect() -> Transport:
        return access.from_kubeconfig(kubeconfig)

    async with Client(connect()) as client:
        await client.apply(kinds.NAMESPACES, {"metadata": {"name": NAMESPACE}}, field_manager="test")
        for namespace in ("default", NAMESPACE):
            with suppress(errors.AlreadyExists):
                await client.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": namespace}})
        for crd in crds.crds():
            await client.apply(kinds.CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="test")
        made = ApiCluster(connect, client, kubeconfig)
        await until(made.knows_our_kinds)
        try:
            async with background(made.free_slices()):
                yield made
        finally:
            await made.clear()


@asynccontextmanager
async def scheduling(
    cluster: ApiCluster, wire: Wire | None = None, **settings: Any
) -> AsyncIterator[asyncio.Task[None]]:
    """A scheduler process in miniature; leaving the block is its SIGTERM, cancelling the task too.

    Its lease outlasts every pause of a busy machine: one that dies without giving it back needs `end_lease`.
    """
    options = {"lease_duration": 60.0, "lease_renew_deadline": 50.0, "lease_retry": 0.1, **settings}
    client = Client(wire or cluster.wire(), timeout=5)
    async with background(main.run(Settings(probes="127.0.0.1:0", **options), client)) as task:
        yield task


@asynccontextmanager
async def background(work: Any) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    except AssertionError as error:
        if task.done() and not task.cancelled() and task.exception() is not None:
            raise task.exception() from error  # type: ignore[misc]  # what the test waited for can never come
        raise
    else:
        if task.done() and not task.cancelled():
            task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


T = TypeVar("T")


async def until_served(client: Client, kind: kinds.Kind) -> None:
    """A kind that was defined just now."""

    async def served() -> bool:
        try:
            await client.list(kind)
        except errors.NotFound:
            return False
        return True

    await until(served)


async def until(probe: Callable[[], Awaitable[T | None]], *, within: float = 40) -> T:
    try:
        async with asyncio.timeout(within):
            while True:
                found = await probe()
                if found:
                    return found
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not so within {within} s") from None
