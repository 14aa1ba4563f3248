"""A node for one test: an API server, the kubelet's device manager and an agent, in one process.

Everything between them is what it is in a cluster: HTTP semantics of the API, gRPC over unix sockets, the
kubelet's checkpoint, CDI files, cgroup folders. The test plays scheduler and container runtime.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from apportion import manifests
from apportion.apis import kinds, names, profiles
from apportion.apis.custom_resources import claims
from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.custom_resources.crds import crds
from apportion.apis.identities import NodeName, PodUID
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.transport import HttpRequest, Response, Transport
from apportion.emulation.gpus.driver import EmulatedDriver
from apportion.node.agent import Agent
from apportion.node.hardware.partitioner import Partitioner
from apportion.node.settings import Settings
from pocketkube.api.in_process_transport import LocalTransport
from pocketkube.api.request_attributes import AUTHENTICATED, User
from pocketkube.api.server import ApiServer
from pocketkube.kubelet.containers import cdi
from pocketkube.kubelet.containers.cgroups import Cgroups
from pocketkube.kubelet.devices.node_devices import NodeDevices
from tests.builders import accelerators, pods
from tests.builders import claims as claim_builder

NODE = NodeName("node-1")
GPUS = accelerators.uuids(NODE, 16)
JSON = dict[str, Any]
# The agent has the rights that the shipped roles and policies give to the agent of this node, and no more.
ACCOUNT = "das-daemonset"
AGENT = User(
    f"system:serviceaccount:{names.DAS_NAMESPACE}:{ACCOUNT}",
    ("system:serviceaccounts", f"system:serviceaccounts:{names.DAS_NAMESPACE}", AUTHENTICATED),
    extra={"authentication.kubernetes.io/node-name": (NODE,)},
)
RBAC, ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
RIGHTS = {
    kind: Kind(group, "v1", plural, kind, namespaced=namespaced)
    for group, kind, plural, namespaced in (
        (RBAC, "ClusterRole", "clusterroles", False),
        (RBAC, "ClusterRoleBinding", "clusterrolebindings", False),
        (RBAC, "Role", "roles", True),
        (RBAC, "RoleBinding", "rolebindings", True),
        (ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", False),
        (ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", False),
    )
}


class AgentNode:
    def __init__(self, server: ApiServer, root: Path) -> None:
        self.server = server
        self.root = root
        self.client = Client(LocalTransport(server))
        self.active: dict[str, JSON] = {}
        self.kubelet = self._kubelet()
        self.cgroups = Cgroups(root)
        self.agent: Agent | None = None
        self._task: asyncio.Task[None] | None = None
        self.make_driver: Callable[[], Partitioner] = lambda: EmulatedDriver(NODE, self.settings.state_dir)
        self.forbidden: list[str] = []
        self.make_client: Callable[[], Client] = lambda: Client(self.agent_transport())
        self.settings = Settings(
            node_name=NODE,
            pod_name="das-daemonset-x",
            pod_uid=PodUID("agent-uid"),
            kubelet_dir=root / "var/lib/kubelet",
            cdi_dir=root / "var/run/cdi",
            state_dir=root / "var/lib/apportion",
            cgroup_dir=root / "sys/fs/cgroup",
            listen="127.0.0.1:0",
            sweep_seconds=0.3,
            memory_report_seconds=0.1,
            settle_seconds=0.05,
            drain_seconds=0.05,
            busy_seconds=0.1,
            poll_seconds=0.05,
            patience_seconds=2.0,
        )

    def agent_transport(self) -> Transport:
        return Rights(LocalTransport(self.server, AGENT), self.forbidden)

    # The agent and the kubelet as processes

    async def start_agent(self, *, ready: bool = True) -> None:
        self.agent = Agent(self.settings, self.make_client(), self.make_driver())
        self._task = asyncio.create_task(self.agent.run())
        if ready:
            await self.eventually(self.is_ready, "the agent is ready")
        self._task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def is_ready(self) -> bool:
        if self._task is None or self._task.done():
            return False
        try:
            found = await self.accelerator()
        except errors.NotFound:
            return False
        return found.ready and self.agent is not None and self.agent.readiness.ready

    async def stop_agent(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=10)
            if not task.cancelled():
                with suppress(BaseExceptionGroup, Exception):
                    task.result()

    async def restart_agent(self) -> None:
        await self.stop_agent()
        await self.start_agent()

    async def restart_kubelet(self) -> None:
        await self.kubelet.stop()
        self.kubelet = self._kubelet()
        await self.kubelet.start()

    def _kubelet(self) -> NodeDevices:
        return NodeDevices(
            self.root / "var/lib/kubelet",
            active=lambda: list(self.active.values()),
            changed=lambda: None,
            rng=random.Random(),
        )

    # What a user and a scheduler do

    async def pod(
        self,
        name: str,
        limits: Mapping[str, int] | None = None,
        *,
        containers: Sequence[JSON] = (),
        init: Sequence[JSON] = (),
        restart: str = "Always",
        namespace: str = "default",
    ) -> JSON:
        amounts = {resource: str(count) for resource, count in (limits or {}).items()}
        body = pods.pod(
            name, namespace=namespace, limits=amounts, containers=containers, init=init, restartPolicy=restart
        )
        return await self.client.create(kinds.PODS, body, namespace=namespace)

    async def claim(
        self,
        pod: JSON,
        profile: str,
        start: int,
        *,
        gpu: int = 0,
        size: int | None = None,
        containers: Sequence[str] = ("main",),
        owner: str | None = None,
        index: int = 0,
        state: str = claims.CREATED,
    ) -> str:
        body = claim_builder.claim(
            pod,
            node=NODE,
            gpu=GPUS[gpu],
            profile=profile,
            start=start,
            size=size,
            containers=containers,
            owner=owner or "",
            index=index,
        )
        name = body.name
        await self.client.create(kinds.ALLOCATION_CLAIMS, body, namespace=names.DAS_NAMESPACE)
        if state != claims.CREATED:  # the schema's default
            await self.client.patch(
                kinds.ALLOCATION_CLAIMS,
                name,
                {"status": {"state": state}},
                namespace=names.DAS_NAMESPACE,
                subresource="status",
            )
        return name

    async def bind(self, pod: JSON) -> None:
        meta = pod["metadata"]
        await self.client.bind(meta["namespace"], meta["name"], meta["uid"], NODE)

    async def scheduled(self, name: str, profile: str = "1g.5gb", start: int = 0, *, gpu: int = 0) -> JSON:
        """A pod with one container and one slice, claimed and bound."""
        pod = await self.pod(name, {profiles.slice_resource(profile): 1})
        await self.claim(pod, profile, start, gpu=gpu)
        await self.bind(pod)
        return pod

    # What a kubelet and a runtime do

    async def admit(self, pod: JSON) -> None:
        self.active[pod["metadata"]["uid"]] = pod
        await self.kubelet.allocate(pod)

    async def start(self, pod: JSON, name: str = "main") -> dict[str, str]:
        """PreStartContainer for every resource, CDI, and a process; gives the container's environment."""
        uid = pod["metadata"]["uid"]
        await self.kubelet.pre_start(uid, find_container(pod, name))
        edits = cdi.resolve(self.root, self.kubelet.run_options(uid, name).cdi)
        self.cgroups.add(uid, f"id-{name}", 4711)
        return edits.env

    async def run(self, pod: JSON, name: str = "main") -> dict[str, str]:
        await self.admit(pod)
        environment = await self.start(pod, name)
        await self.report(pod, "Running")
        return environment

    async def end(self, pod: JSON, *names_of: str) -> None:
        """The processes of these containers are over (all of them without names)."""
        uid = pod["metadata"]["uid"]
        for name in names_of or [entry["name"] for entry in all_containers(pod)]:
            self.cgroups.remove(uid, f"id-{name}")

    async def report(self, pod: JSON, phase: str, **status: Any) -> None:
        meta = pod["metadata"]
        await self.client.patch(
            kinds.PODS,
            meta["name"],
            {"status": {"phase": phase, **status}},
            namespace=meta["namespace"],
            subresource="status",
        )
        if phase in ("Succeeded", "Failed"):
            self.active.pop(meta["uid"], None)

    async def delete(self, pod: JSON) -> None:
        """The whole end of a pod: processes, then the object."""
        await self.end(pod)
        await self.vanish(pod)

    async def vanish(self, pod: JSON) -> None:
        """The object alone, as with --grace-period=0 --force."""
        meta = pod["metadata"]
        self.active.pop(meta["uid"], None)
        await self.client.delete(kinds.PODS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], grace=0)

    # What an observer sees

    async def get(self, name: str) -> AllocationClaim:
        return await self.client.get(kinds.ALLOCATION_CLAIMS, name, namespace=names.DAS_NAMESPACE, into=AllocationClaim)

    async def claims(self) -> list[AllocationClaim]:
        listing = await self.client.list(kinds.ALLOCATION_CLAIMS, namespace=names.DAS_NAMESPACE, into=AllocationClaim)
        return listing.items

    async def accelerator(self) -> NodeAccelerator:
        return await self.client.get(kinds.NODE_ACCELERATORS, NODE, namespace=names.DAS_NAMESPACE, into=NodeAccelerator)

    async def events(self) -> list[JSON]:
        return (await self.client.list(kinds.EVENTS, namespace="default")).items

    async def slices(self) -> list[str]:
        return [found.uuid for found in await EmulatedDriver(NODE, self.settings.state_dir).slices()]

    def cdi_files(self) -> list[Path]:
        return sorted(self.settings.cdi_dir.glob("*"))

    async def clean(self) -> bool:
        return not (await self.claims() or await self.slices() or self.cdi_files())

    async def annotate_node(self, **annotations: str | None) -> None:
        patch = {"metadata": {"annotations": {key.replace("__", "/"): value for key, value in annotations.items()}}}
        await self.client.patch(kinds.NODES, NODE, patch)

    async def eventually(self, check: Callable[[], Any], what: str, *, seconds: float = 30.0) -> Any:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            found = check()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            if loop.time() > end:
                raise AssertionError(f"not within {seconds:g} s: {what}")
            await asyncio.sleep(0.02)


class Rights:
    """Remembers what the agent was not allowed to do."""

    def __init__(self, inner: Transport, forbidden: list[str]) -> None:
        self._inner = inner
        self._forbidden = forbidden

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        answer = await self._inner.send(request, stream=stream, timeout=timeout)
        if answer.status == 403:
            self._forbidden.append(f"{request.method} {request.path}")
        return answer

    async def close(self) -> None:
        await self._inner.close()


def all_containers(pod: JSON) -> list[JSON]:
    return [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]


def find_container(pod: JSON, name: str) -> JSON:
    return next(entry for entry in all_containers(pod) if entry["name"] == name)


@asynccontextmanager
async def agent_node(*, annotations: Mapping[str, str] | None = None) -> AsyncIterator[AgentNode]:
    # Socket paths may have 107 characters: pytest's own folders are too deep.
    root = Path(tempfile.mkdtemp(prefix="an-"))
    server = ApiServer()
    place = AgentNode(server, root)
    try:
        for name in ("default", names.DAS_NAMESPACE):
            with suppress(errors.AlreadyExists):
                await place.client.create(kinds.NAMESPACES, {"metadata": {"name": name}})
        with suppress(errors.AlreadyExists):
            await place.client.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace="default")
        for manifest in manifests.load():
            if manifest["kind"] in RIGHTS and manifest["metadata"]["name"].startswith((ACCOUNT, "das-agent-")):
                namespace = manifest["metadata"].get("namespace")
                await place.client.create(RIGHTS[manifest["kind"]], manifest, namespace=namespace)
        for definition in crds():
            await place.client.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition)
        await place.client.create(kinds.NODES, {"metadata": {"name": NODE, "annotations": dict(annotations or {})}})
        await place.kubelet.start()
        yield place
        assert place.forbidden == [], "the shipped roles and policies do not allow what the agent does (R01, T04)"
    finally:
        await place.stop_agent()
        await place.kubelet.stop()
        closing = server.close()
        if asyncio.iscoroutine(closing):
            await closing
        shutil.rmtree(root, ignore_errors=True)
