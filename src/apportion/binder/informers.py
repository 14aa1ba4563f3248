"""What the binder follows: BindRequests, reservation pods and the pods that share GPUs, and what settings depend on."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from apportion.apis import kinds, names
from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.custom_resources.das_operator import DASOperator
from apportion.apis.custom_resources.kai_config import Config
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.installation import Installation
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.shared_gpus import groups_of, shared_gpus_of
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from apportion.cluster.optional_informers import OptionalInformer

BY_GROUP, BY_UID, BY_GPU, BY_NODE = "group", "uid", "gpu", "node"


class Informers:
    """One for each kind, made anew for every leadership."""

    def __init__(self, client: Client, installation: Installation) -> None:
        self._reservation_namespace = installation.reservation_namespace
        self.requests = Informer(
            client,
            kinds.BIND_REQUESTS,
            into=BindRequest,
            indexes={
                BY_GROUP: lambda request: request.spec.selected_gpu_groups,
                BY_UID: lambda request: (request.spec.pod_uid,),
            },
        )
        self.pods = Informer(
            client,
            kinds.PODS,
            into=Pod,
            labels=names.GPU_GROUP_LABEL,
            indexes={
                BY_GROUP: lambda pod: groups_of(pod.metadata),
                BY_UID: lambda pod: (pod.metadata.uid,),
                BY_GPU: lambda pod: {gpu.uuid or gpu.device for gpu in shared_gpus_of(pod.metadata)},
                BY_NODE: lambda pod: (pod.spec.node_name,),
            },
        )
        self.unbound = Informer(client, kinds.PODS, into=Pod, fields="spec.nodeName=")
        self.nodes = Informer(client, kinds.NODES, into=Node)
        self.runtime_classes = Informer(client, kinds.RUNTIME_CLASSES, into=Bare)
        namespace = installation.namespace
        self.accelerators = Informer(client, kinds.NODE_ACCELERATORS, into=NodeAccelerator, namespace=namespace)
        self.operators = Informer(client, kinds.DAS_OPERATORS, into=DASOperator, namespace=namespace)
        self.configs = Informer(client, kinds.KAI_CONFIGS, into=Config)
        self._all: list[Informer[Any] | OptionalInformer] = [
            self.requests,
            self.pods,
            self.unbound,
            self.nodes,
            self.runtime_classes,
            OptionalInformer(client, self.accelerators, namespace=namespace),
            OptionalInformer(client, self.operators, namespace=namespace),
            OptionalInformer(client, self.configs),
        ]

    def runs(self) -> list[Coroutine[Any, Any, None]]:
        return [informer.run() for informer in self._all]

    async def synced(self) -> None:
        for informer in self._all:
            await informer.synced()

    def is_requested(self, uid: PodUID) -> bool:
        """Whether a pod is to be bound, or was bound, by a BindRequest that did not fail."""
        return any(not request.failed for request in self.requests.indexed(BY_UID, uid))

    def is_reservation(self, pod: Pod) -> bool:
        return pod.metadata.namespace == self._reservation_namespace

    def reservations(self, group: str) -> list[Pod]:
        """The reservation pods of a shared GPU: one, if all is well."""
        return [pod for pod in self.pods.indexed(BY_GROUP, group) if self.is_reservation(pod)]

    def sharers(self, group: str) -> list[Pod]:
        """The pods with the label of a shared GPU, bound or not."""
        return [pod for pod in self.pods.indexed(BY_GROUP, group) if not self.is_reservation(pod)]

    def sharers_on(self, node: NodeName) -> list[Pod]:
        """The pods with the label of a shared GPU that are bound to a node and have not ended."""
        found = self.pods.indexed(BY_NODE, node)
        return [pod for pod in found if not pod.terminal and not self.is_reservation(pod)]

    def running_on(self, gpu: DeviceUUID, node: NodeName) -> list[Pod]:
        """The pods that share a GPU of a node, by what is written on them."""
        return [pod for pod in self.pods.indexed(BY_GPU, gpu) if pod.spec.node_name == node and not pod.terminal]

    def pod(self, uid: PodUID) -> Pod | None:
        return next(iter(self.pods.indexed(BY_UID, uid)), None)
