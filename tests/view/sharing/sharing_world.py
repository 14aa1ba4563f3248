"""A cluster with shared GPUs, told to a view object by object."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from apportion.apis import names, shared_gpus
from apportion.apis.custom_resources.accelerators import SHARING, NodeAccelerator
from apportion.apis.custom_resources.bind_requests import FAILED, BindRequest
from apportion.apis.custom_resources.kai_config import Config
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.cluster import clock
from apportion.view.view import View
from tests.builders import accelerators, nodes, pods
from tests.builders.accelerators import A100

GPU = names.NVIDIA_GPU
RESERVATIONS = names.RESERVATION_NAMESPACE


class SharingWorld:
    """Objects by name; a pod has the uid `uid-NAME`, the GPUs of a node with an agent are `GPU-NODE-0` and so on."""

    def __init__(self, *, on: bool = True) -> None:
        self.view = View()
        self._known: dict[tuple[type, str, str], Any] = {}
        self._tell({"metadata": {"name": names.KAI_CONFIG_OBJECT}, "spec": {"admission": {"gpuSharing": on}}}, Config)

    def node(
        self,
        name: str,
        *,
        gpus: int = 2,
        mig: int = 0,
        product: str = A100,
        shared: bool = True,
        ready: bool = True,
        healthy: bool = True,
        used: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        """A node with an agent; the first `mig` GPUs are in MIG mode. `shared` False: its agent says that containers
        would not get shared GPUs. `used` are the MiB that it measured, by pod and GPU."""
        resources = {GPU: gpus - mig, **nodes.slice_devices(mig)} if mig else {GPU: gpus}
        self._tell(nodes.node(name, resources=resources), Node)
        listed = [
            accelerators.gpu(f"GPU-{name}-{i}", product=product, mig=i < mig, healthy=healthy) for i in range(gpus)
        ]
        report = accelerators.accelerator(name, listed, agent_uid=f"agent-{name}")
        report["status"]["conditions"].append({"type": SHARING, "status": str(shared)})
        report["status"]["memoryUse"] = [
            {"podUID": f"uid-{pod}", "uuid": device, "usedMiB": mib} for (pod, device), mib in (used or {}).items()
        ]
        self._tell(report, NodeAccelerator)
        self._tell(accelerators.agent_pod(name, uid=f"agent-{name}", ready=ready), Pod)

    def slots(self, name: str, mib: int | None, *, gpus: int = 2) -> None:
        """A node on which another device plugin serves the GPUs."""
        labels = {names.GPU_PRODUCT_LABEL: "Tesla-T4"} | ({names.GPU_MEMORY_LABEL: str(mib)} if mib else {})
        self._tell(nodes.node(name, labels=labels, resources={GPU: gpus}, mig_capable=False), Node)

    def pod(self, name: str, *, namespace: str = "default", phase: str = "Pending", **options: Any) -> Pod:
        body = pods.our_pod(name, namespace=namespace, uid=f"uid-{name}", **options)
        return self._tell({**body, "status": {"phase": phase}}, Pod)

    def asks(
        self, pod: Pod, node: str, *devices: str, mib: int, failed: str = "", group: str = "", seconds: int = 0
    ) -> BindRequest:
        """The scheduler has handed the pod to the binder, so many seconds ago."""
        groups = [group or f"group-{device.replace('/', '-')}" for device in devices]
        spec = {
            "podName": pod.metadata.name,
            "podUID": pod.metadata.uid,
            "selectedNode": node,
            "selectedGPUGroups": groups,
            "selectedDevices": list(devices),
            "receivedGPU": {"count": len(devices), "memoryMiB": mib},
        }
        meta = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": f"request-{pod.metadata.name}"}
        status = {"phase": FAILED, "reason": failed} if failed else {}
        meta["creationTimestamp"] = clock.timestamp_of(int(time.time()) - seconds)
        return self._tell({"metadata": meta, "spec": spec, "status": status}, BindRequest)

    def shares(self, name: str, node: str, *devices: str, mib: int, uuid: str = "", **options: Any) -> Pod:
        """A pod that is bound with its shares."""
        groups = [f"group-{device.replace('/', '-')}" for device in devices]
        found = [shared_gpus.SharedGpu(*each, mib, uuid) for each in zip(groups, devices, strict=True)]
        labels = shared_gpus.group_labels(groups)
        annotations = {names.SHARED_GPUS: shared_gpus.encode_shared_gpus(found)}
        asked = options if {"fraction", "memory"} & set(options) else {"memory": mib, **options}
        many = {"devices": len(devices)} if len(devices) > 1 else {}
        return self.pod(name, node=node, labels=labels, annotations=annotations, phase="Running", **asked, **many)

    def reservation(self, node: str, device: str, holds: str = "", **status: Any) -> Pod:
        """The reservation pod of a GPU; the one that it `holds` if it says so already."""
        group = f"group-{device.replace('/', '-')}"
        name = shared_gpus.reservation_name(node, group)
        annotations = {names.PLANNED_GPU: device} | ({names.RESERVED_GPU: holds} if holds else {})
        labels = {names.GPU_GROUP_LABEL: group}
        body = pods.pod(
            name, namespace=RESERVATIONS, uid=f"uid-{name}", labels=labels, annotations=annotations, node=node, gpus=1
        )
        return self._tell({**body, "status": {"phase": "Running", **status}}, Pod)

    def forget(self, obj: Any) -> None:
        meta = obj.metadata
        self._feed(self._known.pop((type(obj), meta.namespace, meta.name)), None)

    def forget_node(self, name: str) -> None:
        """A node with what its agent reports."""
        for kind, namespace, known in list(self._known):
            if kind in {Node, NodeAccelerator} and known == name:
                self._feed(self._known.pop((kind, namespace, known)), None)

    def _tell(self, body: dict[str, Any], kind: type) -> Any:
        new = msgspec.convert(body, kind, strict=False)
        key = (kind, new.metadata.namespace, new.metadata.name)
        old, self._known[key] = self._known.get(key), new
        self._feed(old, new)
        return new

    def _feed(self, old: Any, new: Any) -> None:
        view = self.view
        match new or old:
            case Config():
                view.sharing_switch.changed(old, new)
            case Node():
                view.nodes.changed(old, new)
            case NodeAccelerator():
                view.accelerators.changed(old, new)
            case BindRequest():
                view.shares.bind_request_changed(old, new)
            case _:
                view.pods.changed(old, new)
