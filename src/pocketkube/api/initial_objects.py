"""What a cluster holds before anybody has written anything: namespaces, priorities, roles."""

from __future__ import annotations

from typing import Any

import msgspec

from apportion.cluster.transport import HttpRequest
from pocketkube.api.access import default_roles
from pocketkube.api.request_attributes import ADMIN
from pocketkube.api.server import ApiServer
from pocketkube.api.storage.store import Bucket, Store

Obj = dict[str, Any]

_CREATED, _CONFLICT = 201, 409

COMPONENTS = ("controller-manager", "etcd-0", "scheduler")
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


def objects() -> list[Obj]:
    """Everything, in an order in which it can be created."""
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES]
    priorities = [
        _priority(
            "system-cluster-critical", 2_000_000_000, "must run in the cluster, but can be moved to another node"
        ),
        _priority("system-node-critical", 2_000_001_000, "must not be moved from their current node"),
    ]
    return [*namespaces, *priorities, *default_roles.objects()]


async def prepare(server: ApiServer) -> None:
    """Create what is not there yet, as an administrator would."""
    _report_components(server.store)
    for obj in objects():
        resource = server.registry.by_api_version(obj["apiVersion"], obj["kind"])
        assert resource is not None
        root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
        body = msgspec.json.encode(obj)
        request = HttpRequest("POST", f"{root}/{resource.plural}", (), {"content-type": "application/json"}, body)
        response = await server.handle(request, ADMIN)
        if response.status not in (_CREATED, _CONFLICT):
            raise RuntimeError(f"the cluster cannot start: {(response.body or b'').decode()}")


def _report_components(store: Store) -> None:
    """Controllers and scheduler run in the process of the server: as long as it answers, they are healthy."""
    healthy = {"type": "Healthy", "status": "True", "message": "ok"}
    bucket = Bucket("", "componentstatuses")
    for name in COMPONENTS:
        if store.get(bucket, "", name) is None:
            component = {"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name}}
            store.create(bucket, "", name, component | {"conditions": [healthy]})


def _priority(name: str, value: int, what: str) -> Obj:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "description": f"Used for system critical pods that {what}.",
    }
