"""G01, G12, D04: what the webhook learns about sharing from the cluster, while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from apportion.admission.cluster_knowledge import labelled_memory
from apportion.apis import kinds
from apportion.apis.meta import ObjectMeta
from apportion.apis.nodes import Node
from apportion.cluster.client import Client
from apportion.core.catalog import LARGEST_MEMORY_MIB, Catalog
from tests.admission.api_server import SETTINGS, api, replica
from tests.admission.reviews import Asker, applied, review
from tests.admission.test_shares import FRACTION, sharer
from tests.admission.test_webhook import HOST, SLICED, port, published, ready
from tests.environments.waiting import eventually

Json = dict[str, Any]

ABOVE = str(Catalog.shipped().largest_memory_mib() + 1)


@asynccontextmanager
async def asked() -> AsyncIterator[tuple[Client, Asker]]:
    """A webhook with the default runtime class nvidia, of a cluster without a Config."""
    async with (
        api() as client,
        replica(client, replace(SETTINGS, runtime_class="nvidia")) as (address, probes),
    ):
        await eventually(lambda: ready(probes))
        yield client, Asker(port(address), await published(client), HOST)


async def refusal(asker: Asker, body: Json) -> str:
    answer = await asker.ask(review(body))
    return "" if answer["allowed"] else str(answer["status"]["message"])


async def configure(client: Client, admission: Json) -> None:
    await client.create(kinds.KAI_CONFIGS, {"metadata": {"name": "kai-config"}, "spec": {"admission": admission}})


async def test_g01_the_config_switches_sharing_on_and_off() -> None:
    async with asked() as (client, asker):
        body = sharer(FRACTION)
        assert "GPU sharing is switched off" in await refusal(asker, body)
        await client.create(
            kinds.KAI_CONFIGS, {"metadata": {"name": "other"}, "spec": {"admission": {"gpuSharing": True}}}
        )
        await configure(client, {})
        assert "GPU sharing is switched off" in await refusal(asker, body)
        for on in (True, False, True):
            await client.patch(kinds.KAI_CONFIGS, "kai-config", {"spec": {"admission": {"gpuSharing": on}}})
            await eventually(lambda on=on: _is(asker, body, on=on))
        await client.delete(kinds.KAI_CONFIGS, "kai-config")
        await eventually(lambda: _is(asker, body, on=False))


async def _is(asker: Asker, body: Json, *, on: bool) -> bool:
    return (await refusal(asker, body) == "") is on


async def test_g01_without_the_kind_of_the_config_slices_are_served_and_shares_refused() -> None:
    async with api() as client:
        await client.delete(kinds.CUSTOM_RESOURCE_DEFINITIONS, "configs.kai.scheduler")
        async with replica(client) as (address, probes):
            await eventually(lambda: ready(probes))
            asker = Asker(port(address), await published(client), HOST)
            assert await refusal(asker, SLICED) == ""
            assert "GPU sharing is switched off" in await refusal(asker, sharer(FRACTION))


@pytest.mark.parametrize(
    ("configured", "existing", "given"),
    [
        (None, "nvidia", "nvidia"),
        (None, "other", None),
        ("", "nvidia", None),
        ("other", "other", "other"),
        ("missing", "nvidia", None),
    ],
)
async def test_g12_the_config_names_the_runtime_class(configured: str | None, existing: str, given: str | None) -> None:
    async with asked() as (client, asker):
        await client.create(kinds.RUNTIME_CLASSES, {"metadata": {"name": existing}, "handler": "x"})
        settings = {"gpuSharing": True} | ({} if configured is None else {"gpuPodRuntimeClassName": configured})
        await configure(client, settings)
        body = sharer(FRACTION)

        async def settled() -> bool:
            answer = await asker.ask(review(body))
            return bool(answer["allowed"]) and applied(body, answer)["spec"].get("runtimeClassName") == given

        await eventually(settled)
        own = sharer(FRACTION, runtimeClassName="own")
        assert applied(own, await asker.ask(review(own)))["spec"]["runtimeClassName"] == "own"


async def test_d04_gpus_that_nodes_report_count_as_known() -> None:
    async with asked() as (client, asker):
        await configure(client, {"gpuSharing": True})
        body = sharer({"gpu-memory": ABOVE})
        await eventually(lambda: _says(asker, body, "no known GPU has more than"))
        labels = {"nvidia.com/gpu.memory": ABOVE}
        await client.create(kinds.NODES, {"metadata": {"name": "n1", "labels": labels}})
        await eventually(lambda: _says(asker, body, ""))
        await client.delete(kinds.NODES, "n1")
        await eventually(lambda: _says(asker, body, "no known GPU has more than"))
        gpu = {"uuid": "GPU-1", "model": "m", "memoryMiB": int(ABOVE), "migEnabled": False, "profiles": []}
        where = "das-operator"
        await client.create(kinds.NODE_ACCELERATORS, {"metadata": {"name": "n2"}, "spec": {}}, namespace=where)
        status = {"status": {"gpus": [gpu]}}
        await client.patch(kinds.NODE_ACCELERATORS, "n2", status, namespace=where, subresource="status")
        await eventually(lambda: _says(asker, body, ""))


async def _says(asker: Asker, body: Json, text: str) -> bool:
    said = await refusal(asker, body)
    return text in said if text else said == ""


@pytest.mark.parametrize(
    ("label", "mib"),
    [("81920", {81920}), ("", set()), ("80GB", set()), ("-1", set()), ("9" * 60, {LARGEST_MEMORY_MIB})],
)
def test_t02_labels_of_nodes_are_read_with_care(label: str, mib: set[int]) -> None:
    assert labelled_memory(Node(metadata=ObjectMeta(labels={"nvidia.com/gpu.memory": label}))) == mib
