"""GPU models, what an agent reports about a node's GPUs, and the agent's own pod."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from apportion.apis import names
from apportion.apis.custom_resources.accelerators import AcceleratorProfile
from apportion.apis.meta import to_wire
from apportion.core.catalog import Catalog, Model
from tests.builders.pods import pod

Json = dict[str, Any]

CATALOG = Catalog.shipped()
A100 = "NVIDIA A100-PCIE-40GB"
H100 = "NVIDIA H100 80GB HBM3"
T4 = "Tesla T4"
AGENT_UID = "agent-1"


def model(product: str = A100) -> Model:
    found = CATALOG.find(product)
    assert found is not None
    return found


def uuids(node: str, count: int) -> list[str]:
    """The same for the same node, as an emulated driver makes them."""
    return [f"GPU-{uuid.uuid5(uuid.UUID(int=0), f'{node}-{index}')}" for index in range(count)]


def gpu(device: str, *, product: str = A100, mig: bool = True, foreign: Iterable[Json] = (), **fields: Any) -> Json:
    """One GPU of a report; `foreign` are slices that nobody in the cluster asked for."""
    known = model(product)
    cuts = [AcceleratorProfile(name=p.name, size=p.size, starts=list(p.starts), limit=p.limit) for p in known.profiles]
    return {
        "uuid": device,
        "model": product,
        "memoryMiB": known.memory_mib,
        "migEnabled": mig,
        "profiles": [to_wire(cut) for cut in cuts] if mig else [],
        "foreign": list(foreign),
        **fields,
    }


def report(node: str, gpus: Sequence[Json], *, agent_uid: str = AGENT_UID, ready: bool = True) -> Json:
    """The status that a node's agent writes."""
    condition = {
        "type": "Ready",
        "status": str(ready),
        "reason": "GPUsAccessible",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 0,
    }
    agent = {"namespace": names.DAS_NAMESPACE, "name": agent_name(node), "uid": agent_uid}
    return {"gpus": list(gpus), "agent": agent, "conditions": [condition]}


def accelerator(node: str, gpus: Sequence[Json] | None = None, **options: Any) -> Json:
    """The NodeAccelerator of a node, with one A100 if nothing else is said."""
    listed = [gpu(f"GPU-{node}")] if gpus is None else gpus
    metadata = {"name": node, "namespace": names.DAS_NAMESPACE}
    return {"metadata": metadata, "spec": {}, "status": report(node, listed, **options)}


def agent_name(node: str) -> str:
    return f"agent-{node}"


def agent_pod(node: str, *, ready: bool = True, uid: str = "") -> Json:
    labels = {names.APP_LABEL: names.AGENT_APP}
    body = pod(agent_name(node), namespace=names.DAS_NAMESPACE, uid=uid, labels=labels, node=node)
    return {**body, "status": agent_status(ready=ready)}


def agent_status(*, ready: bool) -> Json:
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
