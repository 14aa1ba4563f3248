"""The webhook process: informers, certificates and the HTTPS server, put together.

It is ready once it knows the cluster, serves a certificate, and the API server has been told whom to
trust. When it is asked to stop it first stops being ready, then answers what still arrives, then ends.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from apportion.admission import metrics, reviewing
from apportion.admission.credentials import Credentials, SecretKeeper, Terms, service_names
from apportion.admission.knowledge import Knowledge
from apportion.admission.server import AdmissionServer, Limits
from apportion.admission.trust import Caller, Publisher
from apportion.apis import kinds, names
from apportion.apis.meta import Bare
from apportion.cluster import probes
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.workqueue import WorkQueue
from apportion.core.catalog import Catalog

log = logging.getLogger(__name__)

SLICES_PATH = "/mutate-slices"
CALLERS = (Caller(kinds.MUTATING_WEBHOOKS, names.SLICE_WEBHOOK_CONFIGURATION),)
LOOK_AGAIN_SECONDS = 3600.0
"""How often certificates are looked at even if nothing changes; they live for months."""


@dataclass(frozen=True)
class Settings:
    """How the webhook runs; everything else is in the cluster."""

    listen: str
    probes: str
    namespace: str = names.DAS_NAMESPACE
    service: str = names.WEBHOOK_SERVICE
    secret: str = names.WEBHOOK_CERTIFICATE_SECRET
    runtime_class: str | None = None
    limits: Limits = field(default_factory=Limits)


async def run(settings: Settings) -> None:
    """Serve until cancelled."""
    async with Client.connect() as client:
        await Webhook(client, settings).run()


class Webhook:
    """One replica."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._settings = settings
        self._knowledge = Knowledge(
            client, catalogued=Catalog.shipped().profile_names(), runtime_class=settings.runtime_class
        )
        self._terms = Terms(service_names(settings.service, settings.namespace))
        self._keeper = SecretKeeper(client, namespace=settings.namespace, name=settings.secret, terms=self._terms)
        self._publisher = Publisher(client, CALLERS, service=settings.service, namespace=settings.namespace)
        self._secret = Informer(
            client, kinds.SECRETS, into=Bare, namespace=settings.namespace, fields=f"metadata.name={settings.secret}"
        )
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._served: Credentials | None = None
        self._work: WorkQueue[str] = WorkQueue("certificates")
        self._draining = False
        self.bound = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            informers = [*self._knowledge.informers, *self._publisher.informers, self._secret]
            background = [tasks.create_task(informer.run()) for informer in informers]
            background.append(tasks.create_task(self._follow_certificates()))
            try:
                await self._serve()
            finally:
                for task in background:
                    task.cancel()

    async def _serve(self) -> None:
        server = AdmissionServer(
            {SLICES_PATH: lambda question: reviewing.slices(question, self._knowledge.around)},
            self._context,
            able=self._knowledge.synced,
            limits=self._settings.limits,
        )
        ready = {
            "knowledge": self._knowledge.synced,
            "certificate": lambda: self._served is not None,
            "trust": self._publisher.published,
            "running": lambda: "draining" if self._draining else True,
        }
        async with probes.serve(self._settings.probes, ready=ready) as probed:
            host, port = probes.address(self._settings.listen)
            try:
                bound = await server.start(host, port)
                log.info("listening on %s:%d, probes on %s", host, bound, probed)
                self.bound.set_result((f"{host}:{bound}", probed))
                await asyncio.Event().wait()
            finally:
                self._draining = True
                await server.stop()

    async def _follow_certificates(self) -> None:
        """Look at the Secret and the configurations at the start, at every change, and now and then."""
        self._publisher.on_change(lambda: self._work.add(self._settings.secret))
        self._secret.on_change(lambda _old, _new: self._work.add(self._settings.secret))
        followed: list[Informer[Any]] = [*self._publisher.informers, self._secret]
        for informer in followed:
            await informer.synced()
        self._work.add(self._settings.secret)
        await self._work.run(self._reconcile)

    async def _reconcile(self, _: str) -> float:
        credentials = await self._keeper.ensure()
        await self._publisher.publish(credentials.bundle)
        if self._served is None or self._served.pair != credentials.pair:
            credentials.pair.load_into(self._context)
            self._served = credentials
            metrics.CERTIFICATE_EXPIRY.set(credentials.pair.expires.timestamp())
            left = credentials.pair.expires - datetime.now(UTC)
            log.info("serving a certificate that is valid for %d days", left.days)
        return LOOK_AGAIN_SECONDS
