"""The node's label `nvidia.com/mig.config.state`: has the layout that was asked for been reached?"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from apportion.apis import kinds, names
from apportion.apis.identities import NodeName
from apportion.cluster.client import Client
from apportion.cluster.errors import ClusterError

log = logging.getLogger(__name__)


class LayoutStateLabel:
    def __init__(self, client: Client, node: NodeName) -> None:
        self._client = client
        self._node = node

    async def show(self, state: str, labels: Mapping[str, str]) -> None:
        """Write the label if it differs; an empty state removes it."""
        if labels.get(names.MIG_CONFIG_STATE_LABEL, "") == state:
            return
        change = {"metadata": {"labels": {names.MIG_CONFIG_STATE_LABEL: state or None}}}
        try:
            await self._client.patch(kinds.NODES, self._node, change)
        except ClusterError as error:
            log.warning("label %s cannot be written: %s", names.MIG_CONFIG_STATE_LABEL, error)
