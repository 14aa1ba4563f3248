"""The webhook process: informers, certificates and the HTTPS server.

It is ready when its caches are synced, it serves a certificate, and the webhook configurations contain its CA.
When it is stopped, it first reports not ready, continues to answer for a moment, and then exits.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apportion.admission import environment, guard, metrics, slice_review, static_or_dynamic
from apportion.admission.certificates.credentials import FolderKeeper, SecretKeeper, Terms, service_names
from apportion.admission.certificates.serving_tls import ServingTls
from apportion.admission.certificates.trust import Caller, Publisher
from apportion.admission.cluster_knowledge import ClusterKnowledge
from apportion.admission.fallback import decision_log
from apportion.admission.fallback.decision_rounds import DecisionRounds, Patience
from apportion.admission.fallback.fallback_review import FallbackReview
from apportion.admission.fallback.promise_store import PromiseStore
from apportion.admission.fallback.quotas import Quotas
from apportion.admission.large_reviews import LargeReviews
from apportion.admission.server import AdmissionServer, Limits, Rule
from apportion.apis import kinds
from apportion.apis.installation import Installation
from apportion.apis.meta import Bare
from apportion.cluster import allocator, probes
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.optional_informers import OptionalInformer
from apportion.cluster.workqueue import WorkQueue
from apportion.core.catalog import Catalog
from apportion.view.informers import Informers
from apportion.view.view import View

log = logging.getLogger(__name__)

SLICES, GUARD, FALLBACK = PARTS = ("slices", "guard", "fallback")
PATHS = {SLICES: "/mutate-slices", GUARD: "/validate", FALLBACK: "/mutate-fallback"}
ENVIRONMENT_PATH = "/mutate-environment"
"""Of the guard, too. Its entry is in the configuration of slices, because it must be called after theirs."""
LOOK_AGAIN_SECONDS = 3600.0
"""How often certificates are checked if nothing changes; they are valid for months."""
FILES_AGAIN_SECONDS = 1.0
"""How often certificate files are checked; there is no notification of changes."""


@dataclass(frozen=True)
class Settings:
    """How the webhook runs; everything else is in the cluster."""

    listen: str
    probes: str
    serve: tuple[str, ...] = (SLICES, GUARD)
    installation: Installation = field(default_factory=Installation)
    namespace: str = Installation.namespace
    """Of this Deployment, its Service and its certificates."""
    service: str = Installation.webhook_service
    secret: str = Installation.webhook_secret
    certificates: Path | None = None
    """A directory with ca.crt, tls.crt and tls.key; None: the Secret, which the webhook maintains."""
    client_ca: Path | None = None
    """A file with the CA of clients that may call; None: everybody may."""
    runtime_class: str | None = None
    tiers: tuple[str, ...] = static_or_dynamic.DEFAULT_TIERS
    patience: Patience = field(default_factory=Patience)
    limits: Limits = field(default_factory=Limits)


def callers(installation: Installation) -> dict[str, Caller]:
    """The webhook configuration of each set of rules."""
    return {
        SLICES: Caller(kinds.MUTATING_WEBHOOKS, installation.slice_configuration),
        GUARD: Caller(kinds.VALIDATING_WEBHOOKS, installation.guard_configuration),
        FALLBACK: Caller(kinds.MUTATING_WEBHOOKS, installation.fallback_configuration),
    }


async def run(settings: Settings) -> None:
    """Serve until cancelled."""
    async with Client.connect() as client:
        await Webhook(client, settings).run()


class Webhook:
    """One replica."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self._settings = settings
        slicing = SLICES in settings.serve
        self._knowledge = ClusterKnowledge(
            client,
            catalog=Catalog.shipped(),
            runtime_class=settings.runtime_class,
            tiers=settings.tiers,
            slicing=slicing,
            namespace=settings.installation.namespace,
        )
        self._large = LargeReviews()
        self._fallback: Fallback | None = None
        if FALLBACK in settings.serve:
            self._fallback = Fallback(client, settings, self._knowledge, self._large)
        self._terms = Terms(service_names(settings.service, settings.namespace))
        self._keeper: SecretKeeper | FolderKeeper = (
            FolderKeeper(settings.certificates)
            if settings.certificates is not None
            else SecretKeeper(client, namespace=settings.namespace, name=settings.secret, terms=self._terms)
        )
        called_by = callers(settings.installation)
        parts = {*settings.serve, SLICES} if GUARD in settings.serve else settings.serve
        self._publisher = Publisher(
            client, [called_by[part] for part in parts], service=settings.service, namespace=settings.namespace
        )
        self._secret = Informer(
            client, kinds.SECRETS, into=Bare, namespace=settings.namespace, fields=f"metadata.name={settings.secret}"
        )
        self.tls = ServingTls(settings.client_ca)
        self._work: WorkQueue[str] = WorkQueue("certificates", longest_backoff=5.0)
        self._draining = False
        self.bound = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        allocator.give_back_large_blocks()
        async with asyncio.TaskGroup() as tasks:
            informers = [*self._knowledge.informers, *self._publisher.informers, *self._secret_informers]
            background = [tasks.create_task(informer.run()) for informer in informers]
            if self._fallback is not None:
                background.append(tasks.create_task(self._fallback.run()))
            background.append(tasks.create_task(self._follow_certificates()))
            try:
                await self._serve()
            finally:
                for task in background:
                    task.cancel()

    async def _serve(self) -> None:
        rules = {PATHS[part]: self._rule(part) for part in self._settings.serve}
        if GUARD in self._settings.serve:
            rules[ENVIRONMENT_PATH] = environment.answer
        server = AdmissionServer(
            rules,
            self.tls.context,
            able=self._able,
            large=self._large,
            limits=self._settings.limits,
        )
        async with probes.serve(self._settings.probes, ready=self._checks) as probed:
            host, port = probes.address(self._settings.listen)
            try:
                bound = await server.start(host, port)
                log.info("listening on %s:%d, probes on %s", host, bound, probed)
                self.bound.set_result((f"{host}:{bound}", probed))
                await asyncio.Event().wait()
            finally:
                self._draining = True
                await server.stop()

    @property
    def _checks(self) -> dict[str, probes.Check]:
        return {
            "caches": self._able,
            "certificate": lambda: self.tls.pair is not None,
            "trust": self._publisher.published,
            "running": lambda: "draining" if self._draining else True,
        }

    def ready(self) -> bool:
        return all(check() is True for check in self._checks.values())

    def _rule(self, part: str) -> Rule:
        if part == FALLBACK:
            assert self._fallback is not None
            return self._fallback.review.answer
        if part == GUARD:
            return guard.judge
        return lambda question: slice_review.answer(question, self._knowledge.facts_for)

    def _able(self) -> bool | str:
        known = self._knowledge.synced()
        return known if known is not True or self._fallback is None else self._fallback.synced()

    @property
    def _secret_informers(self) -> list[Informer[Any]]:
        return [self._secret] if self._settings.certificates is None else []

    async def _follow_certificates(self) -> None:
        """Check the Secret and the configurations at start, at every change, and periodically."""
        self._publisher.on_change(lambda: self._work.add(self._settings.secret))
        self._secret.on_change(lambda _old, _new: self._work.add(self._settings.secret))
        followed: list[Informer[Any]] = [*self._publisher.informers, *self._secret_informers]
        for informer in followed:
            await informer.synced()
        self._work.add(self._settings.secret)
        await self._work.run(self._reconcile)

    async def _reconcile(self, _: str) -> float:
        credentials = await self._keeper.ensure()
        await self._publisher.publish(credentials.bundle)
        if self.tls.refresh(credentials.pair):
            metrics.CERTIFICATE_EXPIRY.set(credentials.pair.expires.timestamp())
            left = credentials.pair.expires - datetime.now(UTC)
            log.info("serving a certificate that expires in %d days", left.days)
        files = self._settings.certificates or self._settings.client_ca
        return FILES_AGAIN_SECONDS if files else LOOK_AGAIN_SECONDS


class Fallback:
    """What only fallback needs: a view of all pods, the promises, and rounds of decisions."""

    def __init__(self, client: Client, settings: Settings, knowledge: ClusterKnowledge, large: LargeReviews) -> None:
        view = View(volumes=False, reservation_namespace=settings.installation.reservation_namespace)
        informers = Informers(
            client,
            view,
            settings.installation,
            nodes=knowledge.nodes,
            namespaces=knowledge.namespaces,
            accelerators=knowledge.accelerators,
        )
        self._pods = informers.pods
        slicing: list[Informer[Any]] = [] if SLICES in settings.serve else [knowledge.accelerators]
        where = settings.installation.namespace
        self._optional = [
            OptionalInformer(client, each, namespace=where, required=True) for each in (*slicing, informers.claims)
        ]
        store = PromiseStore(client, namespace=settings.namespace, name=settings.installation.promises)
        self._quotas = Quotas(client)
        self._rounds = DecisionRounds(
            client, view, informers.pods, store, settings.patience, used_up=self._quotas.used_up
        )
        self.review = FallbackReview(client, knowledge, self._rounds, settings.tiers, large)

    def synced(self) -> bool | str:
        if not (self._pods.has_synced and self._quotas.informer.has_synced):
            return "waiting for pods and quotas"
        waiting = [each.kind.plural for each in self._optional if not each.has_synced]
        return f"waiting for {', '.join(waiting)}" if waiting else True

    async def run(self) -> None:
        decision_log.set_up()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            for informer in self._optional:
                tasks.create_task(informer.run())
            tasks.create_task(self._quotas.informer.run())
            tasks.create_task(self._rounds.run())
