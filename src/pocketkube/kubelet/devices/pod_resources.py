"""The pod-resources service: which container of which pod holds which device ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import grpc

from apportion.apis.kubelet import podresources_pb2 as pb
from apportion.apis.kubelet import podresources_pb2_grpc as rpc
from pocketkube.kubelet.devices.ledger import Ledger
from pocketkube.kubelet.devices.sockets import SocketServer

Pod = Mapping[str, Any]


class PodResourcesServer(SocketServer, rpc.PodResourcesListerServicer):
    """Answers for the active pods of one node. Ordinary init containers are left out, as a real kubelet does."""

    def __init__(self, folder: Path, ledger: Ledger, active: Callable[[], Iterable[Pod]]) -> None:
        super().__init__(folder)
        self._ledger = ledger
        self._active = active

    def _serve(self, server: grpc.aio.Server) -> None:
        rpc.add_PodResourcesListerServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def List(  # noqa: N802
        self,
        request: pb.ListPodResourcesRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[pb.ListPodResourcesRequest, pb.ListPodResourcesResponse],  # noqa: ARG002
    ) -> pb.ListPodResourcesResponse:
        pods = list(self._active())
        self._ledger.keep_only({pod["metadata"]["uid"] for pod in pods})
        return pb.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in pods])

    async def GetAllocatableResources(  # noqa: N802
        self,
        request: pb.AllocatableResourcesRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse],  # noqa: ARG002
    ) -> pb.AllocatableResourcesResponse:
        return pb.AllocatableResourcesResponse(
            devices=[
                pb.ContainerDevices(resource_name=resource, device_ids=ids)
                for resource, ids in self._ledger.healthy().items()
            ]
        )

    async def Get(  # noqa: N802
        self,
        request: pb.GetPodResourcesRequest,
        context: grpc.aio.ServicerContext[pb.GetPodResourcesRequest, pb.GetPodResourcesResponse],
    ) -> pb.GetPodResourcesResponse:
        wanted = (request.pod_namespace, request.pod_name)
        for pod in self._active():
            if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == wanted:
                return pb.GetPodResourcesResponse(pod_resources=self._pod(pod))
        text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError("unreachable: abort raises")

    def _pod(self, pod: Pod) -> pb.PodResources:
        meta, spec = pod["metadata"], pod["spec"]
        sidecars = [c for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"]
        return pb.PodResources(
            name=meta["name"],
            namespace=meta["namespace"],
            containers=[self._container(meta["uid"], c["name"]) for c in sidecars + spec["containers"]],
        )

    def _container(self, uid: str, name: str) -> pb.ContainerResources:
        return pb.ContainerResources(
            name=name,
            devices=[
                pb.ContainerDevices(resource_name=resource, device_ids=sorted(held.ids))
                for resource, held in self._ledger.held(uid, name).items()
            ],
        )
