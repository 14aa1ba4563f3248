"""Queues become the tree by which the fleet is shared out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from apportion.apis import kinds, names
from apportion.apis.custom_resources.queues import Queue
from apportion.apis.installation import Installation
from apportion.core.cluster_changes import Happened
from apportion.core.queues.tree import FREE, Problem
from apportion.view.informers import Informers
from apportion.view.view import View
from tests.builders import groups
from tests.scheduler.cluster import ApiCluster, embedded
from tests.view.followed import Followed, followed, read_afresh

Json = dict[str, Any]


@pytest.fixture
async def cluster() -> AsyncIterator[ApiCluster]:
    async with embedded() as made:
        yield made


def typed(body: Json) -> Queue:
    return msgspec.json.decode(msgspec.json.encode(body), type=Queue)


def tree_of(made: Followed) -> Any:
    return made.view.fleet.accounts.tree


async def test_q01_queues_of_the_cluster_are_the_tree_of_the_fleet(cluster: ApiCluster) -> None:
    cpu = {"gpu": {"quota": 2.5, "limit": 4, "overQuotaWeight": 0.1}, "cpu": {"quota": 500}}
    await cluster.client.create(kinds.QUEUES, groups.queue("above", gpus=8, reclaimMinRuntime="90s"))
    async with followed(cluster) as made:
        await made.create(
            kinds.QUEUES,
            groups.queue("team", parent="above", priority=7, resources=cpu, preemptMinRuntime="1500ms"),
        )
        await made.until(lambda: "team" in tree_of(made))
        above, team = tree_of(made).queues["above"], tree_of(made).queues["team"]
        assert (above.gpu.quota, above.gpu.limit, above.gpu.weight, above.priority) == (8000, -1, 1, 100)
        assert (above.cpu, above.memory) == (FREE, FREE), "it says nothing of them"
        assert team.gpu == (2500, 4000, Fraction(1, 10))
        assert (team.cpu.quota, team.priority, team.parent) == (500, 7, "above")
        assert (above.reclaim_min_runtime, team.preempt_min_runtime, team.reclaim_min_runtime) == (90, 2, None)
        assert team.created
        assert tree_of(made).path("team") == ("team", "above")

        await made.client.delete(kinds.QUEUES, "above")
        await made.until(lambda: tree_of(made).problem("team") is Problem.NO_PARENT)


async def test_q02_without_queues_the_default_queue_has_everything_and_with_others_it_must_exist(
    cluster: ApiCluster,
) -> None:
    async with followed(cluster) as made:
        assert tree_of(made).problem("default-queue") is None
        assert tree_of(made).queues["default-queue"].allowances == (FREE, FREE, FREE)
        await made.create(kinds.QUEUES, groups.queue("team", gpus=1))
        await made.until(lambda: tree_of(made).problem("default-queue") is Problem.UNKNOWN)
        assert tree_of(made).problem("team") is None
        await made.client.delete(kinds.QUEUES, "team")
        await made.until(lambda: tree_of(made).problem("default-queue") is None)


async def test_q01_an_older_installation_without_queues_and_groups_is_followed_all_the_same(
    cluster: ApiCluster,
) -> None:
    for kind in (kinds.QUEUES, kinds.POD_GROUPS):
        await cluster.client.delete(kinds.CUSTOM_RESOURCE_DEFINITIONS, f"{kind.plural}.{kind.group}")
    assert (await read_afresh(cluster)).fleet.accounts.tree.problem("default-queue") is None
    async with followed(cluster) as made:
        assert tree_of(made).problem("default-queue") is None
        await made.pod("grouped", annotations={names.POD_GROUP: "gang"})
        await made.read("grouped", group="gang", queue="default-queue")


def test_q01_q12_a_queue_that_cannot_be_read_is_known_with_its_problem_and_harms_no_other() -> None:
    view = View()
    reader = view.changes.reader()
    good, bad = typed(groups.queue("good", gpus=1)), typed(groups.queue("bad", gpus=-3))
    view.queues.all_changed([(None, good), (None, bad)])
    assert [change.kind for change in reader.take()] == [Happened.QUEUE_CHANGED]
    tree = view.fleet.accounts.tree
    assert tree.problem("good") is None
    assert tree.problem("bad") is Problem.INVALID
    assert str(view.queues.problems["bad"]).startswith("spec.resources.gpu.quota: '-3'")

    better = typed(groups.queue("bad", gpus=3))
    view.queues.changed(bad, better)
    assert view.fleet.accounts.tree.problem("bad") is None
    assert not view.queues.problems


def test_q12_a_status_that_is_written_makes_no_new_tree() -> None:
    view = View()
    queue = typed(groups.queue("team", gpus=1))
    view.queues.changed(None, queue)
    tree, position = view.fleet.accounts.tree, view.changes.position
    told = typed({**groups.queue("team", gpus=1), "status": {"allocated": {"cpu": "1"}}})
    view.queues.changed(queue, told)
    assert view.fleet.accounts.tree is tree
    assert view.changes.position == position
    known = view.queues.get("team")
    assert known is not None
    assert known.status.allocated == {"cpu": "1"}


async def test_q01_many_queues_that_are_listed_make_one_tree(
    cluster: ApiCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await cluster.client.create(kinds.QUEUES, groups.queue(f"q{number}", gpus=1))
    view = View()
    made = []
    set_tree = view.fleet.accounts.set_tree
    monkeypatch.setattr(view.fleet.accounts, "set_tree", lambda tree: (made.append(tree), set_tree(tree)))
    await Informers(cluster.client, view, Installation()).load()
    assert len(made) == 1
    assert len(view.fleet.accounts.tree.queues) == 20
