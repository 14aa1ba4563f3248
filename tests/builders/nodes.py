"""Nodes as the API server stores them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from apportion.apis import names, profiles
from tests.builders.accelerators import A100, model

Json = dict[str, Any]
Amounts = Mapping[str, int | str]

PLENTY = {"cpu": "64", "memory": "256Gi", "pods": "110"}


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Json] = (),
    cordoned: bool = False,
    resources: Amounts | None = None,
    mig_capable: bool = True,
) -> Json:
    """A node that is ready, with plenty of CPU and memory beside its `resources`."""
    own = {names.HOSTNAME_LABEL: name} | ({names.MIG_CAPABLE_LABEL: "true"} if mig_capable else {})
    spec = {"taints": list(taints), "unschedulable": cordoned}
    return {"metadata": {"name": name, "labels": {**own, **(labels or {})}}, "spec": spec, "status": status(resources)}


def status(resources: Amounts | None = None) -> Json:
    amounts = {**PLENTY, **{key: str(amount) for key, amount in (resources or {}).items()}}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
    return {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}


def slice_devices(gpus: int, *, product: str = A100) -> dict[str, str]:
    """What a kubelet offers for so many GPUs in MIG mode: as many devices of a profile as could ever fit."""
    return {profiles.slice_resource(each.name): str(each.most * gpus) for each in model(product).profiles}
