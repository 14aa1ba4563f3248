"""A cluster: API server, controllers, scheduler and kubelets in one process.

    async with EmbeddedCluster(Pool(name="node", nodes=2).plans(), kubeconfig=path) as cluster:
        async with cluster.client() as client: ...

Nothing survives its end: objects live in memory, nodes in one temporary folder, and the kernel ends child processes
together with this one.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from apportion.apis import kinds
from apportion.cluster import errors
from apportion.cluster.certificates import Authority
from apportion.cluster.client import Client
from pocketkube import kubeconfig as kubeconfigs
from pocketkube.api import initial_objects
from pocketkube.api import status as api_status
from pocketkube.api.http import HttpShell
from pocketkube.api.in_process_transport import LocalTransport, PodTransport
from pocketkube.api.request_attributes import ADMIN, AUTHENTICATED, MASTERS, User
from pocketkube.api.server import ApiServer
from pocketkube.api.subresources.logs import LogOptions
from pocketkube.clock import Clock, SystemClock
from pocketkube.controllers.all_controllers import controllers
from pocketkube.controllers.controller import Control
from pocketkube.controllers.volumes.claims import PROVISIONER
from pocketkube.informers import Informers
from pocketkube.kubelet.addresses import Addresses
from pocketkube.kubelet.config_objects import StoredSettings
from pocketkube.kubelet.containers.images import Images
from pocketkube.kubelet.kubelet import Kubelet, Site
from pocketkube.kubelet.light_nodes import LightKubelet, LightPods
from pocketkube.kubelet.sandbox.connection import Sandbox
from pocketkube.kubelet.settings import KubeletSettings
from pocketkube.node_pools import NodePlan
from pocketkube.plugins import Plugins

log = logging.getLogger(__name__)

Json = dict[str, Any]
HOST = "127.0.0.1"
_LOOK_SECONDS = 0.01
CONTROLLERS = User("system:kube-controller-manager", (MASTERS, AUTHENTICATED))


class EmbeddedCluster:
    """Start it, use it through its kubeconfig or `client()`, stop it."""

    def __init__(
        self,
        nodes: Sequence[NodePlan],
        *,
        kubeconfig: Path,
        name: str = "pocketkube",
        root: Path | None = None,
        port: int = 0,
        clock: Clock | None = None,
        kubelet: KubeletSettings | None = None,
        plugins: Plugins | None = None,
    ) -> None:
        self.name = name
        self.kubeconfig = kubeconfig
        self.root = root or temporary_root()
        self.kubelets: dict[str, Kubelet] = {}
        self._nodes: dict[str, Kubelet | LightKubelet] = {}
        self._clock = clock or SystemClock()
        self.server = ApiServer(clock=lambda: datetime.fromtimestamp(self._clock.now(), UTC), with_controllers=True)
        self._plans = list(nodes)
        self._plugins = plugins or Plugins()
        self._images = Images(
            self._plugins.process_images, self._plugins.image_commands, self._plugins.coroutine_images
        )
        self.sandbox = Sandbox(self._clock, self._plugins.programs)
        self._port = port
        self._settings = kubelet or KubeletSettings()
        self._tasks: list[asyncio.Task[None]] = []
        self._http: HttpShell | None = None
        self._informers: Informers | None = None
        self._addresses: Addresses | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        assert self._http is not None
        return self._http.url

    def client(self) -> Client:
        """A client of the administrator, without sockets."""
        return Client(LocalTransport(self.server, ADMIN))

    async def start(self) -> None:
        """Ready means: the API answers, every node is Ready, the kubeconfig is written, and `default` takes pods."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End everything; safe to call at any time, also twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await asyncio.gather(*(node.stop() for node in self._nodes.values()))
        await self.sandbox.stop()
        self._nodes.clear()
        self.kubelets.clear()
        if self._informers is not None:
            await self._informers.stop()
        if self._http is not None:
            await self._http.stop()
            self._http = None
        if self._addresses is not None:
            self._addresses.close()
        self.kubeconfig.unlink(missing_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)

    async def open_log(self, pod: Json, options: LogOptions) -> AsyncIterator[bytes]:
        """Logs of any pod: from the kubelet that runs it."""
        kubelet = self._nodes.get(pod["spec"].get("nodeName", ""))
        if kubelet is None:
            raise api_status.bad_request(f'no kubelet of this cluster runs pod "{pod["metadata"]["name"]}"')
        return await kubelet.open_log(pod, options)

    # Start, in order

    async def _start(self) -> None:
        authority = Authority.create(f"{self.name}-ca")
        await self._serve(authority)
        await initial_objects.prepare(self.server)
        client = Client(LocalTransport(self.server, CONTROLLERS))
        self._informers = Informers(client)
        control = Control(client, self._informers, self._clock)
        parts = controllers(control, self.server, authority.bundle.decode())
        parts += [make(control) for make in self._plugins.controllers]
        for part in parts:
            part.subscribe()
        self._watch_pods(self._informers)
        stored = StoredSettings(self._informers)
        await self._informers.start()
        for part in parts:
            self._tasks.append(asyncio.create_task(_kept_up(part), name=part.name))
        if self._plans:
            await _offer_storage(client)
        await self._start_nodes(stored)
        await _until_there(client, kinds.SERVICE_ACCOUNTS, "default")

    async def _serve(self, authority: Authority) -> None:
        pair = authority.issue(["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"], [HOST])
        self._http = HttpShell(self.server, pair.server_context(), host=HOST, port=self._port)
        await self._http.start()
        self.server.subresources.log_source = self
        self.server.admission.authenticate_to_webhooks(authority.issue(common_name="kube-apiserver", client=True))
        token = secrets.token_urlsafe(32)
        self.server.tokens.add_fixed(token, ADMIN)
        config = kubeconfigs.content(name=self.name, server=self._http.url, ca=authority.bundle, token=token)
        kubeconfigs.write(self.kubeconfig, config)

    async def _start_nodes(self, stored: StoredSettings) -> None:
        assert self._http is not None
        self._addresses = Addresses()
        for plan in self._plans:
            if not plan.light:
                self.kubelets[plan.name] = Kubelet(plan, self._site(plan.name, stored))
        self._nodes.update(self.kubelets)
        if light := [plan for plan in self._plans if plan.light]:
            pods = LightPods(self._site("light", stored))
            self._tasks.append(asyncio.create_task(pods.run(), name="light nodes"))
            self._nodes |= {plan.name: LightKubelet(plan, pods) for plan in light}
        await asyncio.gather(*(node.start() for node in self._nodes.values()))

    def _site(self, name: str, stored: StoredSettings) -> Site:
        assert self._http is not None
        assert self._addresses is not None
        user = User(f"system:node:{name}", ("system:nodes", MASTERS, AUTHENTICATED))
        return Site(
            root=self.root,
            client=Client(LocalTransport(self.server, user)),
            client_of=lambda pod: Client(PodTransport(self.server, pod)),
            clock=self._clock,
            settings=self._settings,
            addresses=self._addresses,
            stored=stored,
            images=self._images,
            sandbox=self.sandbox,
            runtime_files=self._plugins.runtime_files,
            api_host=HOST,
            api_port=self._http.port,
        )

    # Changes for the kubelets

    def _watch_pods(self, informers: Informers) -> None:
        informers.of(kinds.PODS).on_change(self._pod_changed)
        informers.of(kinds.NODES).on_change(self._node_changed)
        for kind in (kinds.CONFIG_MAPS, kinds.SECRETS):
            self._watch_settings(informers, kind)

    def _pod_changed(self, old: Json | None, new: Json | None) -> None:
        obj = new if new is not None else old
        assert obj is not None
        kubelet = self._nodes.get(obj["spec"].get("nodeName", ""))
        if kubelet is not None:
            kubelet.pod_changed(new, obj["metadata"]["uid"])

    def _node_changed(self, _: Json | None, new: Json | None) -> None:
        kubelet = self._nodes.get(new["metadata"]["name"]) if new is not None else None
        if kubelet is not None and new is not None:
            kubelet.node.observe(new)

    def _watch_settings(self, informers: Informers, kind: kinds.Kind) -> None:
        def changed(old: Json | None, new: Json | None) -> None:
            if old is not None and new is not None:
                meta = new["metadata"]
                for kubelet in self.kubelets.values():
                    kubelet.settings_changed(kind.kind, meta["namespace"], meta["name"])

        informers.of(kind).on_change(changed)


class _Part(Protocol):
    name: str

    async def run(self) -> None: ...


async def _offer_storage(client: Client) -> None:
    """Where there are nodes there is storage: claims without a class get folders of theirs."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    storage = {"metadata": {"name": "standard", "annotations": default}, "provisioner": PROVISIONER}
    await client.create(kinds.STORAGE_CLASSES, storage)


async def _until_there(client: Client, kind: kinds.Kind, name: str) -> None:
    """Until a controller has made an object in the namespace `default`."""
    while True:
        try:
            await client.get(kind, name, namespace="default")
        except errors.NotFound:
            await asyncio.sleep(_LOOK_SECONDS)
        else:
            return


async def _kept_up(part: _Part) -> None:
    """A controller that fails is started again: one of them must not stop the others."""
    while True:
        try:
            await part.run()
        except Exception:
            log.exception("controller %s failed and is restarted", part.name)
            await asyncio.sleep(1)


def temporary_root() -> Path:
    """A folder with a short path: the sockets of the nodes lie deep in it, and their paths have a limit."""
    return Path(tempfile.mkdtemp(prefix="ap-", dir="/tmp"))  # TMPDIR may be too long
