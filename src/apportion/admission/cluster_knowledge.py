"""What the webhook needs to know about the cluster, updated by informers.

Nodes list static devices, NodeAccelerators list profiles of dynamic slices, Namespaces contain preferences, and the
Config switches sharing on. The result for the rules is computed when one of these changes, not for each review.

This is not the view's question. D01 asks what the cluster can ever offer: a node whose devices are all unhealthy or in
use (allocatable 0), a GPU that is lost or an agent that is not ready must not change a pod from one mechanism to the
other, or refuse it. So capacity counts here, and health does not; what is free is read from the view by the fallback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from apportion.admission import static_or_dynamic
from apportion.admission.offers import Offers
from apportion.admission.pods import ClusterFacts
from apportion.admission.shares import Sharing
from apportion.apis import kinds, names, profiles, quantity
from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.custom_resources.kai_config import AdmissionConfig, Config
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.optional_informers import OptionalInformer
from apportion.core.catalog import LARGEST_MEMORY_MIB, Catalog, Model

T = TypeVar("T", str, int)

MOST_AWAITED = 64
"""Reviews that wait for their namespace. More come only from somebody who invents namespaces."""


class ClusterKnowledge:
    """Follows nodes, accelerators, namespaces and, for slices and shares, runtime classes and the Config."""

    def __init__(
        self,
        client: Client,
        *,
        catalog: Catalog,
        runtime_class: str | None = None,
        tiers: Sequence[str] = static_or_dynamic.DEFAULT_TIERS,
        slicing: bool = True,
        namespace: str,
    ) -> None:
        """`slicing`: the kinds of the slicing planes are installed; otherwise their informer is run elsewhere."""
        self._catalog = catalog
        self._catalogued = frozenset(catalog.profile_names())
        self._runtime_class = runtime_class
        self._tiers = tuple(tiers)
        self._slicing = slicing
        self._static = Tally(static_profiles)
        self._dynamic = Tally(dynamic_profiles)
        self._memory = Tally(memory_on_node)
        self._labelled_memory = Tally(labelled_memory)
        self._offers: Offers | None = None
        self._models: Catalog | None = None
        self.nodes = Informer(client, kinds.NODES, into=Node)
        self.accelerators = Informer(client, kinds.NODE_ACCELERATORS, into=NodeAccelerator, namespace=namespace)
        self.namespaces = Informer(client, kinds.NAMESPACES, into=Bare)
        self._runtime_classes = Informer(client, kinds.RUNTIME_CLASSES, into=Bare)
        self._configs = Informer(client, kinds.KAI_CONFIGS, into=Config)
        self._config = OptionalInformer(client, self._configs)
        self.nodes.on_change(lambda old, new: self._note(old, new, self._static, self._labelled_memory))
        self.accelerators.on_change(lambda old, new: self._note(old, new, self._dynamic, self._memory))
        self._next_namespace = asyncio.Event()
        self._awaited = 0
        self.namespaces.on_change(self._namespace_changed)

    @property
    def informers(self) -> list[Informer[Any] | OptionalInformer]:
        followed: list[Informer[Any] | OptionalInformer] = [self.nodes, self.namespaces]
        return followed + ([self.accelerators, self._runtime_classes, self._config] if self._slicing else [])

    def synced(self) -> bool | str:
        """A readiness check."""
        waiting = [informer.kind.plural for informer in self.informers if not informer.has_synced]
        return f"waiting for {', '.join(waiting)}" if waiting else True

    def facts_for(self, namespace: str) -> ClusterFacts:
        """What the rules must know for a pod of this namespace."""
        known = self.namespaces.get(namespace)
        return ClusterFacts(
            self.offers,
            namespace_annotations=known.metadata.annotations if known else {},
            tiers=self._tiers,
            runtime_class=self._existing(self._runtime_class),
            sharing=self._sharing(),
        )

    async def knows_namespace(self, name: str, seconds: float) -> bool:
        """Whether a namespace exists; one that was just created is waited for, as long as not many are."""
        if self.namespaces.get(name) is not None:
            return True
        if self._awaited >= MOST_AWAITED:
            return False
        self._awaited += 1
        try:
            async with asyncio.timeout(seconds):
                while self.namespaces.get(name) is None:
                    await self._next_namespace.wait()
        except TimeoutError:
            return False
        finally:
            self._awaited -= 1
        return True

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        known = self.namespaces.get(namespace)
        return known.metadata.labels if known else {}

    @property
    def offers(self) -> Offers:
        if self._offers is None:
            self._offers = Offers(self._static.all(), self._dynamic.all(), self._catalogued)
        return self._offers

    @property
    def models(self) -> Catalog:
        """The catalog, with the largest GPU that nodes report."""
        if self._models is None:
            found = max(self._memory.all() | self._labelled_memory.all(), default=0)
            self._models = Catalog([*self._catalog, Model("reported by nodes", (), found)])
        return self._models

    def _note(self, old: Any, new: Any, profiles_of: Tally[str], memory: Tally[int]) -> None:
        if profiles_of.note(old, new):
            self._offers = None
        if memory.note(old, new):
            self._models = None

    def _namespace_changed(self, old: Bare | None, _new: Bare | None) -> None:
        if old is None:
            self._next_namespace.set()
            self._next_namespace = asyncio.Event()

    def _sharing(self) -> Sharing:
        """What the Config says; without one, or without its kind, sharing is off (G01)."""
        config = self._configs.get(names.KAI_CONFIG_OBJECT)
        settings = config.spec.admission if config is not None else AdmissionConfig()
        configured = settings.gpu_pod_runtime_class_name
        return Sharing(
            on=settings.gpu_sharing,
            runtime_class=self._existing(self._runtime_class if configured is None else configured),
            models=self.models,
        )

    def _existing(self, runtime_class: str | None) -> str | None:
        """Only one that exists: an API server refuses pods that name a missing one (S02, G12)."""
        return runtime_class if runtime_class and self._runtime_classes.get(runtime_class) else None


class Tally(Generic[T]):
    """The profiles, or memory sizes, of each object, and their union."""

    def __init__(self, read: Callable[[Any], frozenset[T]]) -> None:
        self._read: Callable[[Any], frozenset[T]] = read
        self._by_object: dict[str, frozenset[T]] = {}

    def note(self, old: Any, new: Any) -> bool:
        """Record a change; True if what is read of the object changed."""
        name = (new or old).metadata.name
        before = self._by_object.get(name, frozenset())
        after: frozenset[T] = self._read(new) if new is not None else frozenset()
        if after:
            self._by_object[name] = after
        else:
            self._by_object.pop(name, None)
        return before != after

    def all(self) -> frozenset[T]:
        return frozenset().union(*self._by_object.values())


def static_profiles(node: Node) -> frozenset[str]:
    """Profiles of the static devices of the node."""
    return frozenset(
        profile
        for resource, amount in node.status.capacity.items()
        if (profile := profiles.nvidia_profile(resource)) and quantity.parse(amount) > 0
    )


def dynamic_profiles(accelerator: NodeAccelerator) -> frozenset[str]:
    """Profiles that the agent can create. The scheduler checks whether the agent is ready."""
    return frozenset(profile.name for gpu in accelerator.status.gpus if gpu.mig_enabled for profile in gpu.profiles)


def memory_on_node(accelerator: NodeAccelerator) -> frozenset[int]:
    """The MiB of the GPUs that the agent reports."""
    return frozenset(min(gpu.memory_mib, LARGEST_MEMORY_MIB) for gpu in accelerator.status.gpus)


def labelled_memory(node: Node) -> frozenset[int]:
    """The MiB of the GPUs of a node without an agent of ours, as NVIDIA's feature discovery writes them."""
    text = node.metadata.labels.get(names.GPU_MEMORY_LABEL, "")
    return frozenset([min(int(text), LARGEST_MEMORY_MIB)]) if text.isascii() and text.isdecimal() else frozenset()
