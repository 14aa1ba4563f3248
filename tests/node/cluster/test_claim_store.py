"""The agent's copy of its claims: never behind its own writes, and never behind those of others either."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from apportion.apis import kinds, names
from apportion.apis.custom_resources import claims
from apportion.cluster.client import Client
from apportion.cluster.transport import HttpRequest, Response, Transport
from apportion.node.cluster.claim_store import ClaimStore
from tests.node.agent_node import NODE, AgentNode

NEWER = {"status": {"state": claims.IN_USE, "migUUID": "MIG-newer"}}


async def test_s06_an_own_write_does_not_hide_what_others_wrote_later(bare: AgentNode) -> None:
    """The answer to our write comes when our copy has seen it, and a later one too."""
    pod = await bare.pod("a", {"mig.das.com/1g.5gb": 1})
    name = await bare.claim(pod, "1g.5gb", 0)

    async def meanwhile() -> None:
        await write(bare, name, NEWER)
        await bare.eventually(lambda: seen(store, name) == "MIG-newer", "the copy has the newer version")

    transport = Late(bare.agent_transport(), meanwhile)
    store = ClaimStore(Client(transport), NODE, names.DAS_NAMESPACE)
    watching = asyncio.create_task(store.informer.run())
    try:
        await store.informer.synced()
        claim = store.get(name)
        assert claim is not None
        await store.set_state(claim, claims.PROCESSING)
        for found in (store.get(name), *store.all(), *store.of_pod(pod["metadata"]["uid"])):
            assert found is not None
            assert (found.state, found.status.mig_uuid) == (claims.IN_USE, "MIG-newer")
    finally:
        watching.cancel()
        await asyncio.wait([watching], timeout=5)


def seen(store: ClaimStore, name: str) -> str:
    found = store.informer.get(name, names.DAS_NAMESPACE)
    return found.status.mig_uuid if found else ""


async def write(node: AgentNode, name: str, patch: dict[str, dict[str, str]]) -> None:
    await node.client.patch(kinds.ALLOCATION_CLAIMS, name, patch, namespace=names.DAS_NAMESPACE, subresource="status")


class Late:
    """Answers to patches are late: something happens in between."""

    def __init__(self, inner: Transport, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._inner = inner
        self._meanwhile = meanwhile

    async def send(self, request: HttpRequest, *, stream: bool = False, timeout: float | None = None) -> Response:  # noqa: ASYNC109
        answer = await self._inner.send(request, stream=stream, timeout=timeout)
        if request.method == "PATCH":
            await self._meanwhile()
        return answer

    async def close(self) -> None:
        await self._inner.close()
