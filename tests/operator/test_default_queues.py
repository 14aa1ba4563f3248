"""Q02: the queues for pods that name none exist, and belong to the administrator once they do."""

from __future__ import annotations

from apportion import manifests
from apportion.apis import kinds, names
from apportion.apis.custom_resources import queues
from apportion.apis.custom_resources.queues import Queue
from apportion.cluster.client import Client
from apportion.operator.default_queues import DefaultQueues
from tests.admission.api_server import account, api
from tests.environments.waiting import eventually
from tests.operator.test_operator import INSTALLED, operating

BOTH = [names.DEFAULT_PARENT_QUEUE, names.DEFAULT_QUEUE]


async def existing(client: Client) -> list[str]:
    return sorted(entry["metadata"]["name"] for entry in (await client.list(kinds.QUEUES)).items)


async def test_q02_the_operator_makes_the_default_queues_and_they_limit_nothing() -> None:
    async with operating() as client:
        await eventually(lambda: complete(client))
        parent, child = [queues.read(await client.get(kinds.QUEUES, name, into=Queue)) for name in BOTH]
        assert (parent.parent, child.parent) == ("", names.DEFAULT_PARENT_QUEUE)
        for found in (parent, child):
            assert all(each.quota == each.limit == -1 for each in (found.gpu, found.cpu, found.memory))


async def complete(client: Client) -> bool:
    return await existing(client) == BOTH


async def test_q02_an_existing_default_queue_is_not_changed_and_a_missing_one_is_made_again() -> None:
    async with api(INSTALLED) as client:
        mine = {"metadata": {"name": names.DEFAULT_QUEUE}, "spec": {"resources": {"gpu": {"quota": 4}}}}
        await client.create(kinds.QUEUES, mine)
        default = DefaultQueues(account(client, "das-operator"))
        await default.create_missing()
        assert await existing(client) == BOTH
        kept = await client.get(kinds.QUEUES, names.DEFAULT_QUEUE)
        assert kept["spec"]["resources"] == {"gpu": {"quota": 4}}
        await client.delete(kinds.QUEUES, names.DEFAULT_PARENT_QUEUE)
        default.forget()
        await default.create_missing()
        assert await existing(client) == BOTH


async def test_q02_a_kind_that_is_not_served_yet_is_tried_again() -> None:
    without = [kind for kind in INSTALLED if kind != "CustomResourceDefinition"]
    async with api(tuple(without)) as client:
        default = DefaultQueues(account(client, "das-operator"))
        await default.create_missing()
        crd = next(entry for entry in manifests.load() if entry["metadata"]["name"] == "queues.scheduling.run.ai")
        await client.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, crd)
        await default.create_missing()
        assert await existing(client) == BOTH
