"""Random clusters with shared GPUs, each in two forms: Kubernetes objects and a scenario in YAML.

GPUs of different models and memory are free, whole, shared, in MIG mode or unhealthy; some nodes have no agent, and few
places for pods. What runs has its GPUs already, as the binder and the kubelet left them: bound, or still at the binder.
Nobody can be evicted, so that every pod that waits is placed or refused for good.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from apportion.apis import names, shared_gpus
from apportion.apis.identities import DeviceUUID, NodeName
from apportion.apis.shared_gpus import SharedGpu
from apportion.apis.shares import MILLI
from tests.builders import accelerators, nodes, pods
from tests.builders.accelerators import A100, H100, T4
from tests.view.objects import BIND_REQUESTS, CONFIGS, NODES, PODS, REPORTS, Cluster

Json = dict[str, Any]

RESERVATIONS = names.RESERVATION_NAMESPACE
PRODUCTS = (T4, A100, H100)
NOT_PREEMPTIBLE = 100
CPU, MEMORY = "1", "1G"
HOST = {"cpu": "1024", "memory": "20G"}


@dataclass(frozen=True)
class Gpu:
    product: str
    mib: int
    mig: bool = False
    healthy: bool = True


@dataclass(frozen=True)
class Host:
    """A node; without an agent its GPUs are of one kind, and take no slices."""

    name: str
    gpus: tuple[Gpu, ...]
    places: int  # for pods
    agent: bool = True

    def device(self, index: int) -> str:
        return f"GPU-{self.name}-{index}" if self.agent else shared_gpus.slot(NodeName(self.name), index)


@dataclass(frozen=True)
class Asked:
    """What a pod asks for: whole GPUs, or thousandths or MiB of each of `devices` GPUs."""

    gpus: int = 0
    milli: int = 0
    mib: int = 0
    devices: int = 1

    def on(self, gpu: Gpu) -> int:
        return self.mib or self.milli * gpu.mib // MILLI


@dataclass(frozen=True)
class Running:
    name: str
    asked: Asked
    host: str
    indices: tuple[int, ...]
    bound: bool = True  # False: still at the binder
    reserved: bool = True  # the reservation pod of its GPU is there


@dataclass(frozen=True)
class Waiting:
    name: str
    asked: Asked
    priority: int


@dataclass(frozen=True)
class State:
    hosts: tuple[Host, ...]
    running: tuple[Running, ...]
    waiting: tuple[Waiting, ...]
    policy: str

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)


# Random states


def gpus(product: str) -> st.SearchStrategy[Gpu]:
    memory = accelerators.model(product).memory_mib
    sliced = st.booleans() if accelerators.model(product).profiles else st.just(value=False)
    return st.builds(
        Gpu,
        st.just(product),
        st.sampled_from((memory, memory, memory - 1, 9999)),
        sliced.flatmap(lambda can: st.sampled_from((False, False, can))),
        st.sampled_from((True, True, True, True, False)),
    )


@st.composite
def hosts(draw: st.DrawFn, name: str) -> Host:
    places = draw(st.sampled_from((3, 5, 110, 110)))
    if draw(st.sampled_from((True, True, False))):
        listed = st.sampled_from(PRODUCTS).flatmap(gpus)
        return Host(name, tuple(draw(st.lists(listed, min_size=1, max_size=4))), places)
    one = Gpu(draw(st.sampled_from(PRODUCTS)), draw(st.sampled_from((7001, 16000, 40960))))
    return Host(name, (one,) * draw(st.integers(1, 3)), places, agent=False)


SHARES = st.one_of(
    st.builds(Asked, milli=st.integers(10, 999)),
    st.builds(Asked, milli=st.sampled_from((250, 333, 500, 667))),
    st.builds(Asked, mib=st.sampled_from((1, 333, 4000, 7001, 15360, 40960, 90000))),
)
SEVERAL = st.builds(lambda share, devices: replace(share, devices=devices), SHARES, st.integers(2, 3))
WHOLE = st.builds(Asked, gpus=st.integers(1, 2))


@st.composite
def states(draw: st.DrawFn, policies: tuple[str, ...]) -> State:
    made = tuple(draw(hosts(f"n{number}")) for number in range(draw(st.integers(1, 3))))
    wanted = draw(st.lists(st.one_of(SHARES, SHARES, SEVERAL, WHOLE), min_size=2, max_size=8))
    waiting = tuple(
        Waiting(f"p{number}", asked, NOT_PREEMPTIBLE + draw(st.sampled_from((0, 0, 1))))
        for number, asked in enumerate(wanted)
    )
    dice = random.Random(draw(st.integers(0, 2**32)))
    return State(made, tuple(_running(made, dice)), waiting, draw(st.sampled_from(policies)))


def _running(made: tuple[Host, ...], dice: random.Random) -> list[Running]:
    """What fits: GPUs that are taken whole, and shares of others, some of them of several pods."""
    found: list[Running] = []
    for host in made:
        left = {index: gpu.mib for index, gpu in enumerate(host.gpus) if gpu.healthy and not gpu.mig}
        places, shared = host.places - 1, set[int]()
        for index in sorted(left):
            if host.agent and places and dice.random() < 0.25:
                del left[index]
                places -= 1
                found.append(Running(f"r{len(found)}", Asked(gpus=1), host.name, (index,)))
        for index in [each for each in sorted(left) for _ in range(2)]:
            others = [each for each in left if each != index]
            indices = (index, dice.choice(others)) if others and dice.random() < 0.2 else (index,)
            asked = replace(_share(dice), devices=len(indices))
            needed = 1 + len(set(indices) - shared)  # itself, and reservation pods
            fits = all(left[each] >= asked.on(host.gpus[each]) > 0 for each in indices)
            if not fits or needed > places or dice.random() < 0.4:
                continue
            for each in indices:
                left[each] -= asked.on(host.gpus[each])
            places, shared = places - needed, shared | set(indices)
            bound = dice.random() < 0.7
            found.append(
                Running(f"r{len(found)}", asked, host.name, indices, bound=bound, reserved=bound or dice.random() < 0.5)
            )
    return found


def _share(dice: random.Random) -> Asked:
    return Asked(milli=dice.randint(10, 600)) if dice.random() < 0.5 else Asked(mib=dice.choice((1, 333, 3001, 7000)))


# As Kubernetes objects


def objects(state: State) -> Cluster:
    cluster = Cluster()
    config = {"metadata": {"name": names.KAI_CONFIG_OBJECT}, "spec": {"admission": {"gpuSharing": True}}}
    cluster.put(CONFIGS, config)
    for host in state.hosts:
        _put_host(cluster, host, [each for each in state.running if each.host == host.name])
    for number, each in enumerate(state.running):
        cluster.put(PODS, _pod(each.name, each.asked, NOT_PREEMPTIBLE, number))
        if each.asked.gpus:
            bind(cluster, each.name, each.host)
        else:
            _put_share(cluster, state.host(each.host), each)
    for number, waits in enumerate(state.waiting, len(state.running)):
        cluster.put(PODS, _pod(waits.name, waits.asked, waits.priority, number))
    return cluster


def _put_host(cluster: Cluster, host: Host, running: list[Running]) -> None:
    whole = sum(not gpu.mig for gpu in host.gpus)
    resources = {**HOST, "pods": str(host.places + host.agent), names.NVIDIA_GPU: str(whole)}
    if not host.agent:
        labels = {names.GPU_MEMORY_LABEL: str(host.gpus[0].mib), names.GPU_PRODUCT_LABEL: host.gpus[0].product}
        cluster.put(NODES, nodes.node(host.name, labels=labels, resources=resources, mig_capable=False))
        return
    for gpu in host.gpus:
        for name, count in nodes.slice_devices(1, product=gpu.product).items() if gpu.mig else ():
            resources[name] = str(int(resources.get(name, "0")) + int(count))
    cluster.put(NODES, nodes.node(host.name, resources=resources))
    held = {each.indices[0]: each.name for each in running if each.asked.gpus}
    listed = [_reported(host, index, gpu, held.get(index)) for index, gpu in enumerate(host.gpus)]
    uid = f"agent-{host.name}"
    cluster.put(REPORTS, accelerators.accelerator(host.name, listed, agent_uid=uid))
    cluster.put(PODS, accelerators.agent_pod(host.name, uid=uid))


def _reported(host: Host, index: int, gpu: Gpu, holder: str | None) -> Json:
    holders = [{"podUID": f"uid-{holder}", "kind": "whole"}] if holder is not None else []
    fields = {"memoryMiB": gpu.mib, "healthy": gpu.healthy, "holders": holders}
    return accelerators.gpu(host.device(index), product=gpu.product, mig=gpu.mig, **fields)


def _pod(name: str, asked: Asked, priority: int, number: int) -> Json:
    options: Json = {"gpus": asked.gpus} if asked.gpus else {}
    if asked.milli:
        options["fraction"] = f"0.{asked.milli:03}"
    if asked.mib:
        options["memory"] = asked.mib
    if asked.devices > 1:
        options["devices"] = asked.devices
    made = pods.our_pod(name, uid=f"uid-{name}", priority=priority, limits={"cpu": CPU, "memory": MEMORY}, **options)
    made["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{number:02}Z"
    return {**made, "status": {"phase": "Pending"}}


def bind(cluster: Cluster, name: str, node: str, given: tuple[SharedGpu, ...] = ()) -> None:
    def bound(obj: Json) -> None:
        obj["spec"]["nodeName"] = node
        if given:
            labels = shared_gpus.group_labels([gpu.group for gpu in given])
            obj["metadata"].setdefault("labels", {}).update(labels)
            obj["metadata"]["annotations"][names.SHARED_GPUS] = shared_gpus.encode_shared_gpus(given)

    cluster.change(PODS, f"default/{name}", bound)


def report_holder(cluster: Cluster, host: Host, name: str, indices: list[int]) -> None:
    """The agent says which GPUs the kubelet has given to a pod."""

    def held(obj: Json) -> None:
        for index in indices:
            obj["status"]["gpus"][index]["holders"] = [{"podUID": f"uid-{name}", "kind": "whole"}]

    if host.agent:
        cluster.change(REPORTS, f"{names.DAS_NAMESPACE}/{host.name}", held)


def _put_share(cluster: Cluster, host: Host, each: Running) -> None:
    devices = [host.device(index) for index in each.indices]
    mib = [each.asked.on(host.gpus[index]) for index in each.indices]
    groups = [f"group-{device.replace('/', '-')}" for device in devices]
    for group, device in zip(groups, devices, strict=True) if each.reserved else ():
        reserve(cluster, host, group, device)
    if each.bound:
        written = zip(groups, devices, mib, strict=True)
        bind(
            cluster,
            each.name,
            host.name,
            tuple(SharedGpu(g, DeviceUUID(d), m, uuid_of(host, d)) for g, d, m in written),
        )
        return
    spec = {
        "podName": each.name,
        "podUID": f"uid-{each.name}",
        "selectedNode": host.name,
        "selectedGPUGroups": groups,
        "selectedDevices": devices,
        "receivedGPU": {"count": len(devices), "memoryMiB": mib[0]},
    }
    metadata = {"name": each.name, "namespace": "default", "uid": f"request-{each.name}"}
    cluster.put(BIND_REQUESTS, {"metadata": metadata, "spec": spec, "status": {}})


def reserve(cluster: Cluster, host: Host, group: str, device: str) -> None:
    """The reservation pod of a group, which holds the GPU that was planned."""
    name = shared_gpus.reservation_name(NodeName(host.name), group)
    annotations = {names.PLANNED_GPU: device, names.RESERVED_GPU: uuid_of(host, device) or device}
    options: Json = {"namespace": RESERVATIONS, "labels": {names.GPU_GROUP_LABEL: group}, "node": host.name}
    made = pods.pod(name, uid=f"uid-{name}", gpus=1, annotations=annotations, **options)
    cluster.put(PODS, {**made, "status": {"phase": "Running"}})


def uuid_of(host: Host, device: str) -> str:
    """Of a slot; a GPU that an agent reports is known by its UUID anyway."""
    return "" if host.agent else f"GPU-{device.replace('/', '-')}"


# As a scenario


def scenario(state: State, expect: Json) -> Json:
    jobs = [
        {**_job(each.name, each.asked), "priority": NOT_PREEMPTIBLE, "on": each.host, "device": list(each.indices)}
        for each in state.running
    ]
    jobs += [{**_job(each.name, each.asked), "priority": each.priority} for each in state.waiting]
    return {
        "name": "shares are decided alike",
        "policy": state.policy,
        "nodes": {host.name: _node(host) for host in state.hosts},
        "jobs": jobs,
        "expect": expect,
    }


def _node(host: Host) -> Json:
    listed = [{"model": gpu.product, "memory": gpu.mib, "mig": gpu.mig} for gpu in host.gpus]
    return {
        "gpus": listed,
        "unhealthy": [index for index, gpu in enumerate(host.gpus) if not gpu.healthy],
        "agentReady": host.agent,
        "capacity": {"pods": host.places},
    }


def _job(name: str, asked: Asked) -> Json:
    job: Json = {"name": name, "bare": True, "cpu": CPU, "hostMemory": MEMORY}
    if asked.gpus:
        return {**job, "gpus": asked.gpus}
    amount: Json = {"fraction": f"0.{asked.milli:03}"} if asked.milli else {"memory": asked.mib}
    return {**job, **amount, "numDevices": asked.devices}
