"""Rows of owner kinds in the Config: they count as soon as it is observed, for whoever reads the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.apis.kinds import Kind
from tests.builders import groups
from tests.scheduler.cluster import ApiCluster
from tests.view.followed import Followed, followed, read_afresh
from tests.view.groups.test_group_streams import state

Json = dict[str, Any]
TRAININGS = Kind("example.com", "v1", "trainings", "Training")


@pytest.fixture
async def made(each_cluster: ApiCluster) -> AsyncIterator[Followed]:
    async with followed(each_cluster) as found:
        await found.install(TRAININGS)
        yield found


def config(minimum: str) -> Json:
    row = {"group": TRAININGS.group, "kind": TRAININGS.kind, "minimum": {"paths": [minimum]}, "queue": ["spec.team"]}
    return {"metadata": {"name": names.KAI_CONFIG_OBJECT}, "spec": {"podGrouper": {"ownerKinds": [row]}}}


async def training(made: Followed) -> Json:
    spec = {"pods": 3, "least": 2, "team": "team"}
    return await made.create(TRAININGS, groups.owner(TRAININGS.api_version, TRAININGS.kind, "fit", spec=spec))


async def test_q11_rows_come_change_and_go_with_the_config(each_cluster: ApiCluster, made: Followed) -> None:
    owner = await training(made)
    await made.pod("a", owner=owner)
    assert (await made.read("a", queue="default-queue")).group is None

    await made.create(kinds.KAI_CONFIGS, config("spec.pods"))
    name = f"pg-fit-{owner['metadata']['uid']}"
    request = await made.read("a", group=name, queue="team")
    assert made.view.fleet.gang_of(request).minimum == 3
    assert state(made.view) == state(await read_afresh(each_cluster))

    await made.client.patch(kinds.KAI_CONFIGS, names.KAI_CONFIG_OBJECT, {"spec": config("spec.least")["spec"]})
    await made.until(lambda: made.view.fleet.gang_of(request).minimum == 2)
    await made.read("a", group=name, queue="team")
    assert state(made.view) == state(await read_afresh(each_cluster))

    await made.client.delete(kinds.KAI_CONFIGS, names.KAI_CONFIG_OBJECT)
    assert (await made.read("a", queue="default-queue")).group is None


async def test_q11_a_config_of_another_name_does_not_count(made: Followed) -> None:
    other = config("spec.pods") | {"metadata": {"name": "other"}}
    await made.create(kinds.KAI_CONFIGS, other)
    await made.pod("a", owner=await training(made))
    assert (await made.read("a", queue="default-queue")).group is None
    assert made.view.grouper_config.config is None
