"""The webhook process against an API server: certificates, trust, caches, readiness."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from apportion.apis import kinds, names
from apportion.cluster.client import Client
from tests.admission.api_server import ACCESS, SETTINGS, api, replica
from tests.admission.reviews import Asker, applied, review
from tests.admission.samples import both, resources
from tests.builders.pods import container, pod
from tests.environments.waiting import eventually

HOST = "das-operator-webhook.das-operator.svc"
SECRET = names.WEBHOOK_CERTIFICATE_SECRET
SLICED = pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "1"})])


async def test_d02_r01_r03_a_replica_makes_certificates_publishes_them_and_is_then_ready() -> None:
    async with api() as client, replica(client) as (address, probes):
        await eventually(lambda: ready(probes))
        bundle = await published(client)
        asker = Asker(port(address), bundle, HOST)
        assert applied(SLICED, await asker.ask(review(SLICED)))["spec"]["schedulerName"] == "das-scheduler"
        status, metrics = await get(probes, "/metrics")
        assert status == 200
        assert 'apportion_admission_reviews_total{outcome="patched",path="/mutate-slices"}' in metrics
        assert (await get(probes, "/healthz"))[0] == 200


async def test_d02_two_replicas_agree_on_one_authority() -> None:
    async with api() as client, replica(client) as one, replica(client) as other:
        await eventually(lambda: ready(one[1]))
        await eventually(lambda: ready(other[1]))
        bundle = await published(client)
        for address, _ in (one, other):
            assert (await Asker(port(address), bundle, HOST).ask(review(SLICED)))["allowed"] is True


async def test_d02_a_bundle_that_somebody_removed_is_published_again() -> None:
    async with api() as client, replica(client) as (_, probes):
        await eventually(lambda: ready(probes))
        bundle = await published(client)
        await change_configuration(client, lambda entry: entry["clientConfig"].pop("caBundle"))
        await eventually(lambda: still(client, bundle))


async def test_d02_entries_of_others_in_the_configuration_are_left_alone() -> None:
    async with api() as client:
        foreign = {"service": {"name": "theirs", "namespace": "elsewhere"}}
        await change_configuration(client, lambda entry: entry.update(clientConfig=foreign), only=1)
        async with replica(client) as (_, probes):
            await eventually(lambda: ready(probes))
            entries = (await configuration(client))["webhooks"]
            assert ["caBundle" in entry["clientConfig"] for entry in entries] == [True, False, True, True]


async def test_d02_a_removed_configuration_needs_nothing() -> None:
    async with api((*ACCESS, "CustomResourceDefinition")) as client, replica(client) as (_, probes):
        await eventually(lambda: ready(probes))


async def test_d02_it_is_not_ready_before_it_knows_the_cluster() -> None:
    async with api((*ACCESS, "MutatingWebhookConfiguration")) as client, replica(client) as (_, probes):
        status, text = await get(probes, "/readyz")
        assert status == 503
        assert "nodeaccelerators" in text
        assert (await get(probes, "/healthz"))[0] == 200


async def test_r02_a_deleted_secret_is_made_anew_and_served_without_a_restart() -> None:
    async with api() as client, replica(client) as (address, probes):
        await eventually(lambda: ready(probes))
        before = await published(client)
        await client.delete(kinds.SECRETS, SECRET, namespace="das-operator")
        after = await eventually(lambda: changed(client, before))
        asker = Asker(port(address), after, HOST)
        await eventually(lambda: trusted(asker))


async def test_r02_an_invalid_secret_is_repaired() -> None:
    async with api() as client:
        body = {"metadata": {"name": SECRET}, "data": {"tls.crt": base64.b64encode(b"nonsense").decode()}}
        await client.create(kinds.SECRETS, body, namespace="das-operator")
        async with replica(client) as (address, probes):
            await eventually(lambda: ready(probes))
            asker = Asker(port(address), await published(client), HOST)
            assert (await asker.ask(review(SLICED)))["allowed"] is True


async def test_d01_nodes_accelerators_and_namespaces_are_followed() -> None:
    async with api() as client, replica(client) as (address, probes):
        await eventually(lambda: ready(probes))
        asker = Asker(port(address), await published(client), HOST)

        async def becomes(mechanism: str) -> bool:
            after = applied(SLICED, await asker.ask(review(SLICED)))
            return ("mig.das.com/1g.5gb" in resources(after)["limits"]) is (mechanism == "dynamic")

        assert await becomes("dynamic")  # nowhere yet
        await client.create(kinds.NODES, {"metadata": {"name": "n1"}})
        capacity = {"status": {"capacity": {"nvidia.com/mig-1g.5gb": "7"}}}
        await client.patch(kinds.NODES, "n1", capacity, subresource="status")
        await eventually(lambda: becomes("static"))
        await offer(client, "n2", ["1g.5gb", "9g.99gb"])
        await client.patch(kinds.NAMESPACES, "default", {"metadata": {"annotations": {names.MIG_MODE: "dynamic"}}})
        await eventually(lambda: becomes("dynamic"))

        discovered = pod("story", containers=[container(limits={"nvidia.com/mig-9g.99gb": "1"})])
        after = applied(discovered, await asker.ask(review(discovered)))
        assert resources(after) == both({"mig.das.com/9g.99gb": "1", "gpu.das.com/mem": "99"})
        await client.delete(kinds.NODE_ACCELERATORS, "n2", namespace="das-operator")
        await eventually(lambda: becomes("static"))
        refusal = await asker.ask(review(discovered))
        assert refusal["allowed"] is False
        assert "profiles of this cluster: 1g.5gb" in refusal["status"]["message"]


async def test_s02_a_runtime_class_is_set_only_while_it_exists() -> None:
    async with api() as client, replica(client, replace(SETTINGS, runtime_class="nvidia")) as (address, probes):
        await eventually(lambda: ready(probes))
        asker = Asker(port(address), await published(client), HOST)

        async def given() -> str | None:
            answer: dict[str, Any] = applied(SLICED, await asker.ask(review(SLICED)))["spec"]
            return answer.get("runtimeClassName")

        assert await given() is None
        await client.create(kinds.RUNTIME_CLASSES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
        assert await eventually(given) == "nvidia"


@pytest.mark.parametrize("moment", [0.0, 0.05, 0.2])
async def test_r02_it_stops_at_any_moment_within_its_time(moment: float) -> None:
    async with api() as client, asyncio.timeout(10), replica(client):
        await asyncio.sleep(moment)


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def get(address: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
        return response.status, await response.text()


async def ready(probes: str) -> bool:
    return (await get(probes, "/readyz"))[0] == 200


async def configuration(client: Client) -> dict[str, Any]:
    return await client.get(kinds.MUTATING_WEBHOOKS, names.SLICE_WEBHOOK_CONFIGURATION)


async def published(client: Client) -> bytes:
    found = {entry["clientConfig"]["caBundle"] for entry in (await configuration(client))["webhooks"]}
    assert len(found) == 1
    return base64.b64decode(found.pop())


async def still(client: Client, bundle: bytes) -> bool:
    entries = (await configuration(client))["webhooks"]
    return all(entry["clientConfig"].get("caBundle") == base64.b64encode(bundle).decode() for entry in entries)


async def changed(client: Client, before: bytes) -> bytes | None:
    now = await published(client)
    return now if now != before else None


async def trusted(asker: Asker) -> bool:
    try:
        return bool((await asker.ask(review(SLICED)))["allowed"])
    except aiohttp.ClientConnectorCertificateError:
        return False


async def change_configuration(client: Client, change: Any, *, only: int | None = None) -> None:
    body = await configuration(client)
    for index, entry in enumerate(body["webhooks"]):
        if only in (None, index):
            change(entry)
    await client.replace(kinds.MUTATING_WEBHOOKS, body)


async def offer(client: Client, node: str, profiles: list[str]) -> None:
    """A NodeAccelerator as an agent writes it."""
    await client.create(kinds.NODE_ACCELERATORS, {"metadata": {"name": node}}, namespace="das-operator")
    listed = [{"name": name, "size": 1, "starts": [0]} for name in profiles]
    gpu = {
        "uuid": "GPU-1",
        "model": "NVIDIA A100-PCIE-40GB",
        "memoryMiB": 40960,
        "migEnabled": True,
        "profiles": listed,
    }
    status = {"status": {"gpus": [gpu]}}
    await client.patch(kinds.NODE_ACCELERATORS, node, status, namespace="das-operator", subresource="status")
