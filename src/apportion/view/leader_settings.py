"""With which settings the scheduler decides: the leader publishes them on its Lease."""

from __future__ import annotations

from dataclasses import dataclass

from apportion.apis import names
from apportion.apis.installation import Installation
from apportion.apis.kinds import LEASES
from apportion.apis.request import POLICIES
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.lease import Lease
from apportion.core.evictions.room import Consolidation
from apportion.core.policies import Policy


@dataclass(frozen=True)
class LeaderSettings:
    """`leads` is False only if it is certain that no scheduler does; `published`: the settings were read."""

    policy: str = "fragmentation"
    consolidation: Consolidation = Consolidation.GPUS
    leads: bool = True
    published: bool = False

    def annotations(self) -> dict[str, str]:
        return {names.POLICY: self.policy, names.CONSOLIDATION: self.consolidation}

    def new_policy(self) -> Policy:
        return Policy.named(self.policy)

    @property
    def note(self) -> str:
        """What was assumed; empty if nothing was."""
        if self.published:
            return ""
        return (
            f"The settings of the scheduler could not be read. Assumed: --policy {self.policy}, "
            f"--consolidation {self.consolidation}."
        )


async def read(client: Client, installation: Installation) -> LeaderSettings:
    try:
        lease = await client.get(LEASES, installation.scheduler_lease, namespace=installation.namespace, into=Lease)
    except errors.NotFound:
        return LeaderSettings(leads=False)
    except errors.ApiError:
        return LeaderSettings()
    leads = bool(lease.spec.holder_identity)
    policy, consolidation = (lease.metadata.annotations.get(name, "") for name in (names.POLICY, names.CONSOLIDATION))
    if policy not in POLICIES or consolidation not in list(Consolidation):
        return LeaderSettings(leads=leads)
    return LeaderSettings(policy, Consolidation(consolidation), leads=leads, published=True)
