"""Random changes of everything that has to do with shared GPUs: pods with shares, BindRequests, reservation pods, the
switch, and a node whose GPUs no agent reports.

GPUs are given to groups without regard for what is there, so that pods, requests and reservations contradict each
other in every way that a cluster can.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from apportion.apis import names, shared_gpus
from apportion.apis.custom_resources.bind_requests import FAILED
from apportion.apis.identities import DeviceUUID
from apportion.apis.installation import Installation
from apportion.apis.shared_gpus import SharedGpu
from tests.builders import accelerators, nodes, pods
from tests.builders.accelerators import T4
from tests.view import edits
from tests.view.objects import BIND_REQUESTS, CONFIGS, NODES, PODS, REPORTS, Cluster

Json = dict[str, Any]
Step = tuple[int, Callable[[], None]]

RESERVATIONS = Installation.reservation_namespace
SLOTS = "n5"  # the node without an agent
DEVICES = {
    "n3": ("GPU-n3-1", "GPU-n3-2"),
    SLOTS: ("n5/0", "n5/1", "n5/2"),
    "n1": ("GPU-n1-0",),
}
GROUPS = {node: tuple(f"group-{node}-{number}" for number in range(2)) for node in DEVICES}
WANTED: tuple[Json, ...] = (
    {"fraction": "0.5"},
    {"fraction": "0.333"},
    {"fraction": "0.25", "devices": 2},
    {"memory": 5001},
    {"memory": 16000},
    {"memory": 300, "devices": 2},
    {"fraction": "much"},
)


class ShareStream:
    """All of it."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self._cluster, self._dice = cluster, dice
        self._count = 0

    def begin(self) -> None:
        if self._chance(0.8):
            self._config(on=True)
        self._slot_node()

    def steps(self) -> tuple[Step, ...]:
        return (
            (20, self._story),
            (6, self._pod),
            (8, self._request),
            (5, self._change_request),
            (8, self._bind),
            (8, self._reservation),
            (10, self._change_reservation),
            (4, self._slot_node),
            (2, self._slot_report),
            (1, self._switch),
        )

    def _story(self) -> None:
        """What happens to a pod in order, as far as it comes."""
        name, node = self._pod(), self._node()
        for part in (
            lambda: self._request(name, node),
            lambda: self._reservation(node, self._dice.choice(GROUPS[node])),
            lambda: self._bind(name),
        ):
            if self._chance(0.85):
                part()

    def _chance(self, likelihood: float) -> bool:
        return self._dice.random() < likelihood

    def _uid(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    # The switch and the node without an agent

    def _switch(self) -> None:
        if self._chance(0.3):
            self._cluster.remove(CONFIGS, names.KAI_CONFIG_OBJECT)
        else:
            self._config(on=self._chance(0.8))

    def _config(self, *, on: bool) -> None:
        spec = {"admission": {"gpuSharing": on}}
        self._cluster.put(CONFIGS, {"metadata": {"name": names.KAI_CONFIG_OBJECT}, "spec": spec})

    def _slot_node(self) -> None:
        """Its capacity shrinks and grows, and its label comes and goes."""
        memory = self._dice.choice(("16000", "16000", "12000", "", "unknown"))
        labels = {"zone": self._dice.choice("ab")} | ({names.GPU_MEMORY_LABEL: memory} if memory else {})
        count = {names.NVIDIA_GPU: self._dice.choice((0, 1, 2, 3, 3))}
        self._cluster.put(NODES, nodes.node(SLOTS, labels=labels, resources=count, mig_capable=False))

    def _slot_report(self) -> None:
        """An agent begins to report its GPUs, or does so no more."""
        if self._chance(0.5):
            self._cluster.remove(REPORTS, f"{names.DAS_NAMESPACE}/{SLOTS}")
            return
        gpus = [accelerators.gpu(_uuid(slot), product=T4, mig=False, healthy=True) for slot in DEVICES[SLOTS]]
        listed = gpus if self._chance(0.7) else []
        self._cluster.put(REPORTS, accelerators.accelerator(SLOTS, listed))

    # Pods and requests to bind them

    def _pod(self) -> str:
        name = self._uid("s")
        made = pods.our_pod(name, uid=f"uid-{name}", limits={"cpu": "1"}, **self._dice.choice(WANTED))
        made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        self._cluster.put(PODS, {**made, "status": {"phase": "Pending"}})
        return name

    def _pick(self, fits: Callable[[Json], bool]) -> Json | None:
        known = self._cluster.all(PODS)
        found = [pod for key, pod in known.items() if key.startswith("default/s") and fits(pod)]
        return self._dice.choice(found) if found else None

    def _given(self, pod: Json, node: str) -> tuple[list[str], list[str]]:
        """Groups and GPUs, some of them impossible."""
        count = int(pod["metadata"]["annotations"].get(names.GPU_FRACTION_DEVICES, 1))
        groups = self._dice.sample(GROUPS[node], count)
        here = DEVICES[self._dice.choice(tuple(DEVICES))] if self._chance(0.05) else DEVICES[node]
        usual = [here[int(group[-1]) % len(here)] for group in groups]
        return groups, [self._dice.choice(here) if self._chance(0.2) else device for device in usual]

    def _node(self) -> str:
        return self._dice.choice(("n3", "n3", "n3", SLOTS, SLOTS, "n1"))

    def _request(self, only: str = "", node: str = "") -> None:
        """A leader hands a pod to the binder; or the request is that of an earlier pod of the name."""
        pod = self._pick(lambda pod: not pod["spec"].get("nodeName") and only in ("", pod["metadata"]["name"]))
        if pod is None:
            return
        name, uid, node = pod["metadata"]["name"], pod["metadata"]["uid"], node or self._node()
        groups, devices = self._given(pod, node)
        spec: Json = {
            "podName": name,
            "podUID": "uid-earlier" if self._chance(0.1) else uid,
            "selectedNode": node,
            "selectedGPUGroups": groups,
            "selectedDevices": devices,
            "receivedResourceType": names.FRACTION,
        }
        if not self._chance(0.1):
            spec["receivedGPU"] = {"count": len(groups), "memoryMiB": self._dice.choice((4000, 5001, 20000))}
        metadata = {"name": name, "namespace": "default", "uid": self._uid("request")}
        self._cluster.remove(BIND_REQUESTS, f"default/{name}")
        self._cluster.put(BIND_REQUESTS, {"metadata": metadata, "spec": spec, "status": {}})

    def _change_request(self) -> None:
        found = list(self._cluster.all(BIND_REQUESTS))
        if not found:
            return
        key = self._dice.choice(found)
        if self._chance(0.4):
            self._cluster.remove(BIND_REQUESTS, key)
        else:
            failed = {"phase": FAILED, "reason": "the reservation pod has not started"}
            self._cluster.change(BIND_REQUESTS, key, lambda obj: obj.update(status=failed))

    def _bind(self, only: str = "") -> None:
        """The binder binds a pod, mostly as requested; or a pod was bound by somebody else."""
        pod = self._pick(lambda pod: _waits(pod) and only in ("", pod["metadata"]["name"]))
        if pod is None:
            return
        request = self._cluster.all(BIND_REQUESTS).get(f"default/{pod['metadata']['name']}")
        if request is not None and self._chance(0.8):
            spec = request["spec"]
            node, groups, devices = spec["selectedNode"], spec["selectedGPUGroups"], spec["selectedDevices"]
        else:
            node = self._node()
            groups, devices = self._given(pod, node)

        def bound(obj: Json) -> None:
            obj["spec"]["nodeName"] = node
            obj["metadata"].setdefault("labels", {}).update(shared_gpus.group_labels(groups))

        self._cluster.change(PODS, f"default/{pod['metadata']['name']}", bound)
        if self._chance(0.6):
            gpus = [self._written(group, device) for group, device in zip(groups, devices, strict=True)]
            self._annotate(
                f"default/{pod['metadata']['name']}", names.SHARED_GPUS, shared_gpus.encode_shared_gpus(gpus)
            )

    def _written(self, group: str, device: str) -> SharedGpu:
        slot = shared_gpus.is_slot(device) and self._chance(0.7)
        mib = self._dice.choice((4000, 5001, 5001, 0))
        return SharedGpu(group, DeviceUUID(device), mib, _uuid(device) if slot else "")

    def _annotate(self, key: str, name: str, value: str) -> None:
        self._cluster.change(PODS, key, lambda obj: obj["metadata"].setdefault("annotations", {}).update({name: value}))

    # Reservation pods

    def _reservation(self, node: str = "", group: str = "") -> None:
        """For a group that has none, or that has one already."""
        node = node or self._node()
        group = group or self._dice.choice(GROUPS[node])
        name = self._uid("r")
        planned = self._dice.choice(DEVICES[node])
        annotations = {names.PLANNED_GPU: planned}
        if self._chance(0.7):
            annotations[names.RESERVED_GPU] = self._got(planned, node)
        made = pods.pod(
            name,
            uid=f"uid-{name}",
            namespace=RESERVATIONS,
            limits={names.NVIDIA_GPU: 1},
            labels={names.GPU_GROUP_LABEL: group} if self._chance(0.95) else {},
            annotations=annotations,
            node=node,
        )
        self._cluster.put(PODS, {**made, "status": {"phase": "Pending"}})

    def _got(self, planned: str, node: str) -> str:
        """The UUID of the planned GPU, or of another one."""
        device = planned if self._chance(0.5) else self._dice.choice(DEVICES[node])
        return _uuid(device) if shared_gpus.is_slot(device) else device

    def _change_reservation(self) -> None:
        known = self._cluster.all(PODS)
        found = [key for key in known if key.startswith(f"{RESERVATIONS}/r")]
        if not found:
            return
        key = self._dice.choice(found)
        annotations = known[key]["metadata"]["annotations"]
        act = self._dice.choice(("got", "got", "terminate", "end", "gone"))
        if act == "got":
            node = known[key]["spec"]["nodeName"]
            self._annotate(key, names.RESERVED_GPU, self._got(annotations[names.PLANNED_GPU], node))
        elif act == "gone":
            self._cluster.remove(PODS, key)
        else:
            self._cluster.change(PODS, key, edits.delete_running if act == "terminate" else edits.end)


def _waits(pod: Json) -> bool:
    return not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]


def _uuid(slot: str) -> str:
    """Of the GPU that is this slot."""
    return f"GPU-{slot.replace('/', '-')}"
