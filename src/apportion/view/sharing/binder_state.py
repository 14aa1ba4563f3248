"""Whether a binder leads, as far as the reader may know, and where to look for it."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.apis import names
from apportion.apis.installation import Installation
from apportion.apis.kinds import LEASES
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.lease import Lease


@dataclass(frozen=True)
class BinderState:
    """`leads` is None if the Lease of the binder was not read. A binder that was killed still has it."""

    namespace: str = Installation.sharing_namespace
    leads: bool | None = None

    @property
    def check(self) -> str:
        return f"check `kubectl get pods -n {self.namespace} -l {names.COMPONENT_LABEL}={names.BINDER_APP}`"


async def read(client: Client, installation: Installation) -> BinderState:
    namespace = installation.sharing_namespace
    try:
        lease = await client.get(LEASES, installation.binder_lease, namespace=namespace, into=Lease)
    except errors.NotFound:
        return BinderState(namespace, leads=False)
    except errors.ApiError:
        return BinderState(namespace)
    return BinderState(namespace, leads=bool(lease.spec.holder_identity))
