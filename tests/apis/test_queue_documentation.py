"""The examples of docs/queue-objects.md are valid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from apportion.apis import kinds, names
from apportion.apis.custom_resources import crds
from apportion.apis.owner_kinds import rows, table
from apportion.cluster.client import Client
from pocketkube.api.in_process_transport import LocalTransport
from pocketkube.api.server import ApiServer

PAGE = (Path(__file__).parents[2] / "docs" / "queue-objects.md").read_text()


def examples() -> list[dict[str, Any]]:
    return [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]


async def test_q01_the_queue_of_the_page_is_accepted() -> None:
    (queue,) = (entry for entry in examples() if entry.get("kind") == "Queue")
    async with Client(LocalTransport(ApiServer())) as client:
        for crd in crds.crds():
            await client.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, crd)
        made = await client.create(kinds.QUEUES, queue)
    assert made["spec"] == queue["spec"]


async def test_q11_the_configs_of_the_page_are_accepted() -> None:
    async with Client(LocalTransport(ApiServer())) as client:
        for crd in crds.crds():
            await client.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, crd)
        for config in configs():
            made = await client.create(kinds.KAI_CONFIGS, config, dry_run=True)
            assert made["spec"]["podGrouper"] | config["spec"]["podGrouper"] == made["spec"]["podGrouper"]


def configs() -> list[dict[str, Any]]:
    return [entry for entry in examples() if entry.get("kind") == "Config"]


def test_q11_the_row_of_the_page_is_valid_and_its_role_is_aggregated() -> None:
    (config,) = (found for entry in configs() if rows.KEY in (found := entry["spec"]["podGrouper"]))
    found, problems = table.OwnerKinds(()).extended_by(config[rows.KEY])
    assert problems == []
    ((group, _, resource),) = found.kinds()
    (role,) = (entry for entry in examples() if entry.get("kind") == "ClusterRole")
    assert role["metadata"]["labels"] == {names.AGGREGATE_TO_SCHEDULER_LABEL: "true"}
    assert role["rules"] == [{"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}]


def test_q11_the_page_names_every_kind_of_the_table() -> None:
    listed = PAGE.partition("## Groups without a PodGroup")[2].partition("### Adding a kind")[0]
    assert [kind for _, kind, _ in table.shipped().kinds() if kind not in listed] == []
