"""Pods as people write them, and the request that is read from one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from apportion.apis import names, profiles
from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod

Json = dict[str, Any]
Amounts = Mapping[str, int | str]

IMAGE = "busybox:1.36"

_numbers = itertools.count()


def container(
    name: str = "main",
    *,
    slices: Mapping[str, int] | None = None,
    mig: Mapping[str, int] | None = None,
    gpus: int = 0,
    limits: Amounts | None = None,
    requests: Amounts | None = None,
    **fields: Any,
) -> Json:
    """`slices` are ours (`mig.das.com/`), `mig` are NVIDIA's (`nvidia.com/mig-`); other amounts go into `limits`."""
    amounts: dict[str, int | str] = {profiles.slice_resource(each): str(n) for each, n in (slices or {}).items()}
    amounts |= {f"{names.NVIDIA_MIG_PREFIX}{each}": str(n) for each, n in (mig or {}).items()}
    if gpus:
        amounts[names.NVIDIA_GPU] = str(gpus)
    amounts |= limits or {}
    resources = _given(limits=amounts, requests=dict(requests or {}))
    return {"name": name, "image": IMAGE, "resources": resources, **fields}


def pod(
    name: str = "",
    *,
    generate_name: str = "",
    namespace: str = "default",
    uid: str = "",
    slices: Mapping[str, int] | None = None,
    mig: Mapping[str, int] | None = None,
    gpus: int = 0,
    limits: Amounts | None = None,
    fraction: str = "",
    memory: int = 0,
    devices: int = 0,
    containers: Sequence[Json] = (),
    init: Sequence[Json] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: str = "",
    scheduler: str = "",
    node: str = "",
    gates: Sequence[str] = (),
    selector: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A pod with one container `main`, unless `containers` are given. `fraction` or `memory` (MiB) ask for a share of
    a GPU, of `devices` GPUs; `owner` is the uid of the ReplicaSet that made it; everything else goes into its spec."""
    shares = {names.GPU_FRACTION: fraction, names.GPU_SHARE_MEMORY: memory, names.GPU_FRACTION_DEVICES: devices}
    wanted = {key: str(value) for key, value in shares.items() if value}
    metadata = _given(
        name=name,
        generateName=generate_name,
        namespace=namespace,
        uid=uid,
        labels=dict(labels or {}),
        annotations={**wanted, **(annotations or {})},
    )
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "owner", "uid": owner}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    main = [container(slices=slices, mig=mig, gpus=gpus, limits=limits)]
    body = {"containers": list(containers) or main, **spec}
    body |= _given(
        initContainers=list(init),
        schedulerName=scheduler,
        nodeName=node,
        schedulingGates=[{"name": gate} for gate in gates],
        nodeSelector=dict(selector or {}),
    )
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def our_pod(name: str = "", *, scheduler: str = "", **options: Any) -> Json:
    """A pod that our scheduler is to place, unless another one is named."""
    shared = {"fraction", "memory"} & set(options)
    return pod(name, scheduler=scheduler or (names.KAI_SCHEDULER if shared else names.DAS_SCHEDULER), **options)


def fallback_pod(name: str = "", *, limits: Amounts | None = None, **options: Any) -> Json:
    """A pod that asks for 2g.20gb if nothing else is said, as a ReplicaSet makes it (no name yet) or a person."""
    asked = limits or {f"{names.NVIDIA_MIG_PREFIX}2g.20gb": 1}
    generated = "" if name else "gpu-test-"
    written = {resource: str(amount) for resource, amount in asked.items()}
    return pod(name, generate_name=generated, namespace="", limits=written, **options)


def typed(body: Json, **more: Any) -> Pod:
    """The pod as our code reads it; `more` are whole parts of the object, such as its status."""
    return msgspec.convert({**body, **more}, Pod)


def pod_request(name: str = "", *, cpu: str = "", **options: Any) -> Request:
    """What the deciding code sees of such a pod. Without a name it gets one of its own."""
    name = name or f"pod-{next(_numbers)}"
    namespace = options.get("namespace", "default")
    options.setdefault("uid", f"uid-{namespace}-{name}")
    if cpu:
        options["limits"] = {"cpu": cpu, **options.get("limits", {})}
    return parse_pod(typed(our_pod(name, **options)))


def _given(**values: Any) -> Json:
    return {key: value for key, value in values.items() if value}
