"""A candidate for a lease, as a process of its own that can be stopped and resumed.

    python -m tests.cluster.candidate KUBECONFIG NAMESPACE IDENTITY

While it leads it signs a ledger (a ConfigMap) again and again, each time under the version that it has read: it asks
whether the lease holds, says `sending`, waits a moment and sends. Prints `leads`, `signed`, `refused` and `lost` too.
"""

from __future__ import annotations

import asyncio
import sys

from apportion.apis.kinds import CONFIG_MAPS
from apportion.cluster import errors
from apportion.cluster.client import Client
from apportion.cluster.lease import Election

LEDGER, KEY = "ledger", "signatures"
BEFORE_SENDING_SECONDS = 0.3


async def main(kubeconfig: str, namespace: str, identity: str) -> None:
    async with Client.from_kubeconfig(kubeconfig) as client:
        election = Election(
            client, name="l", namespace=namespace, identity=identity, duration=3, renew_deadline=2, retry=0.2
        )

        async def lead() -> None:
            say("leads")
            try:
                while True:
                    ledger = await client.get(CONFIG_MAPS, LEDGER, namespace=namespace)
                    if election.holds():
                        # Shielded: what is on the wire cannot be called back either.
                        await asyncio.shield(asyncio.create_task(sign(client, ledger, identity)))
            finally:
                say("lost")

        await election.run(lead)


async def sign(client: Client, ledger: dict[str, dict[str, str]], identity: str) -> None:
    say("sending")
    await asyncio.sleep(BEFORE_SENDING_SECONDS)
    ledger["data"][KEY] += f" {identity}"
    try:
        await client.replace(CONFIG_MAPS, ledger)
    except errors.Conflict:
        say("refused")
    else:
        say("signed")


def say(word: str) -> None:
    print(word, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
