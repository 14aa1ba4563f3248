"""Promises whose pods never come lock nobody out but, at most, their own namespace (T03)."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections import Counter
from contextlib import suppress

import pytest

from apportion.admission.fallback import promises
from apportion.admission.fallback.promises import Promise, Sighting, StoredPromises
from apportion.admission.main import Settings
from apportion.cluster import errors
from tests.admission.fallback.cluster import CONFIGURATIONS, FallbackCluster, asked, fallback_cluster, with_patience
from tests.admission.fallback.test_deciding import NO_PODS, ONE, QUOTAS, TWO, burst
from tests.admission.fallback.test_promises import LIFETIME, Reader
from tests.admission.reviews import Asker, review
from tests.builders.pods import fallback_pod
from tests.environments.waiting import eventually

SHARED = 1.5
HOST = "gpu-webhook.gpu-webhook.svc"
BIG = {"nvidia.com/mig-2g.20gb": 1}


def settings() -> Settings:
    return with_patience(deadline=8.0, lifetime=60.0, shared=SHARED, briefly=0.3)


async def greedy_namespace(it: FallbackCluster, name: str) -> None:
    """One whose quota allows no pod."""
    await it.namespace(name)
    await it.client.create(QUOTAS, NO_PODS, namespace=name)


async def refused(it: FallbackCluster, namespace: str, count: int = 12) -> None:
    """Pods that are promised devices and then refused by the quota."""
    for number in range(count):
        with pytest.raises(errors.Forbidden):
            await it.create(fallback_pod(owner=f"refused-{number}"), namespace=namespace)


async def private(it: FallbackCluster, namespace: str) -> Counter[bool]:
    listed = (await it.stored_promises()).get("promises", [])
    return Counter(bool(each.get("private")) for each in listed if each["namespace"] == namespace)


async def test_t03_a_namespace_whose_pods_are_refused_delays_another_tenant_once_and_never_again() -> None:
    async with fallback_cluster(settings=settings()) as it:
        await greedy_namespace(it, "greedy")
        await refused(it, "greedy")
        assert await private(it, "greedy") == {False: 12}
        assert asked(await it.create(fallback_pod(owner="a"))) == TWO  # waits until the first is overdue
        await asyncio.sleep(SHARED)
        assert asked(await it.create(fallback_pod(owner="a"))) == TWO
        assert await private(it, "greedy") == {True: 12}
        assert (await it.stored_promises())["unredeemed"] == {"greedy": 12}
        made = [await it.create(fallback_pod(owner="a")) for _ in range(11)]
        assert [asked(each) for each in made] == [TWO] * 10 + [ONE]  # exact, whatever greedy was promised


async def test_t03_what_a_suspended_namespace_is_promised_counts_for_it_alone_and_survives_a_restart() -> None:
    async with fallback_cluster(settings=settings()) as it:
        await it.set_capacity("medium", {"nvidia.com/mig-2g.20gb": 5, "nvidia.com/mig-1g.10gb": 4})
        await greedy_namespace(it, "greedy")
        await refused(it, "greedy", 3)
        await asyncio.sleep(SHARED)
        await it.create(fallback_pod(owner="a"))
        await it.stop("replica-0")
        await it.start("replica-1", settings())
        await refused(it, "greedy", 1)
        assert await private(it, "greedy") == {True: 4}
        made = await asyncio.gather(*(it.create(fallback_pod(owner="a")) for _ in range(3)))
        assert [asked(each) for each in made] == [TWO] * 3


@pytest.mark.parametrize("replicas", [1, 2])
async def test_t03_f04_bursts_stay_exact_while_other_namespaces_attack(replicas: int) -> None:
    async with fallback_cluster(replicas=replicas, settings=settings()) as it:
        for name in ("greedy", "other"):
            await greedy_namespace(it, name)
        attack = asyncio.gather(*(attacking(it, name) for name in ("greedy", "other") for _ in range(6)))
        try:
            await asyncio.sleep(0.5)
            assert await burst(it, 20) == {"2g.20gb": 12, "1g.10gb": 8}
        finally:
            attack.cancel()
            with suppress(asyncio.CancelledError):
                await attack


async def attacking(it: FallbackCluster, namespace: str) -> None:
    while True:
        with suppress(errors.Forbidden, errors.TooManyRequests):
            await it.create(fallback_pod(owner="attack"), namespace=namespace)


async def test_t03_many_namespaces_in_turn_delay_a_pod_no_longer_than_one() -> None:
    async with fallback_cluster(settings=with_patience(deadline=8.0, lifetime=60.0, shared=3.0, briefly=0.3)) as it:
        await it.set_capacity("medium", {"nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-1g.10gb": 4})
        names = [f"greedy-{number}" for number in range(6)]
        for name in names:
            await greedy_namespace(it, name)
        await refused(it, names[0], 2)
        waiting = [
            asyncio.create_task(it.create(fallback_pod(owner="attack"), namespace=name))
            for name in names[1:]
            for _ in range(2)
        ]
        assert asked(await it.create(fallback_pod(owner="a"))) == TWO  # never "retry"
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_t03_forged_reviews_are_promised_nothing_for_namespaces_that_do_not_exist() -> None:
    async with fallback_cluster(replicas=0) as it:
        address = await it.start("replica", settings())
        asker = await stranger(it, address)
        answers = await asyncio.gather(*(asker.ask(forged("nowhere"), "/mutate-fallback") for _ in range(12)))
        assert {answer["status"]["code"] for answer in answers} == {429}
        assert "there is no namespace nowhere" in answers[0]["status"]["message"]
        assert asked(await it.create(fallback_pod(owner="a"))) == TWO


async def test_t03_forged_reviews_delay_others_once_and_the_namespace_in_question_is_told() -> None:
    async with fallback_cluster(replicas=0) as it:
        await it.namespace("victim")
        impatient = with_patience(deadline=2.5, lifetime=60.0, shared=SHARED)
        asker = await stranger(it, await it.start("replica", impatient))
        for _ in range(3):
            await asyncio.gather(*(asker.ask(forged("victim"), "/mutate-fallback") for _ in range(12)))
            assert asked(await it.create(fallback_pod(owner="a"))) == TWO
        with pytest.raises(errors.TooManyRequests, match="if nobody created such pods, who can reach this webhook"):
            await it.create(fallback_pod(owner="theirs"), namespace="victim")


async def test_t03_f04_a_review_with_an_endless_uid_spoils_no_round() -> None:
    async with fallback_cluster(replicas=0) as it:
        asker = await stranger(it, await it.start("replica", settings()))
        body = forged("default")
        body["request"]["uid"] = "u" * 2_000_000
        status, said = await asker.post("/mutate-fallback", json.dumps(body).encode())
        assert status == 400
        assert "uid" in said
        assert asked(await it.create(fallback_pod(owner="a"))) == TWO


async def stranger(it: FallbackCluster, address: str) -> Asker:
    """Somebody on the pod network, who knows what everybody may know."""
    bundle = await eventually(lambda: published(it))
    return Asker(int(address.rpartition(":")[2]), base64.b64decode(bundle), HOST)


async def published(it: FallbackCluster) -> str:
    found = await it.client.get(*CONFIGURATIONS)
    text: str = found["webhooks"][0]["clientConfig"].get("caBundle", "")
    return text


def forged(namespace: str) -> dict[str, dict[str, object]]:
    return review(fallback_pod(name="forged", limits=BIG), namespace=namespace, uid=str(uuid.uuid4()))


# The stored promises themselves


def promise(number: int, namespace: str = "a", **fields: bool) -> Promise:
    return Promise(str(number), 100.0, "k", "n", namespace=namespace, **fields)


def overdue(reader: Reader, stored: StoredPromises) -> StoredPromises:
    reader.tidied(stored)
    reader.elapsed += 5.5
    return reader.tidied(stored)


def test_t03_a_pod_that_comes_late_takes_back_what_its_namespace_was_charged() -> None:
    reader = Reader()
    stored = overdue(reader, StoredPromises((promise(0), promise(1))))
    assert stored.unredeemed == {"a": 2}
    assert [each.private for each in stored.promises] == [True, True]
    later = reader.tidied(stored, {"k": {"uid-a": Sighting(7, 106.0)}})
    assert later.unredeemed == {"a": 1}
    assert len(later.promises) == 1


def test_t03_a_namespace_is_forgiven_after_a_while_and_not_while_it_goes_on() -> None:
    reader = Reader()
    stored = overdue(reader, StoredPromises((promise(0),)))
    reader.elapsed += promises.FORGIVE_SECONDS - 1
    stored = overdue(reader, promises.added(reader.tidied(stored), promise(1, private=True), {}))
    assert stored.unredeemed == {"a": 2}
    reader.tidied(stored)
    reader.elapsed += promises.FORGIVE_SECONDS - LIFETIME
    assert reader.tidied(stored).unredeemed == {"a": 2}
    reader.elapsed += LIFETIME + 1
    assert reader.tidied(stored).unredeemed == {}


def test_t03_another_replica_knows_what_is_overdue() -> None:
    stored = overdue(Reader(), StoredPromises((promise(0),)))
    again = Reader().tidied(StoredPromises.decode(stored.encode()))
    assert again.promises[0].private
    assert again.unredeemed == {"a": 1}


def test_t03_no_namespace_fills_the_object() -> None:
    stored = StoredPromises()
    for number in range(2 * promises.MOST_PROMISES):
        name = "ab"[number % 2]
        if not stored.full_for(name):
            stored = promises.added(stored, promise(number, name), {})
    assert Counter(each.namespace for each in stored.promises) == dict.fromkeys("ab", promises.MOST_OF_A_NAMESPACE)
    stored = overdue(Reader(), stored)
    assert stored.full_for("a")
    assert not stored.full_for("c")
    after = promises.added(stored, promise(-1, "c"), {})
    assert len(after.promises) == promises.MOST_PROMISES
    assert after.promises[-1].namespace == "c"


def test_t03_a_burst_of_two_hundred_is_no_attack() -> None:
    stored = StoredPromises(tuple(promise(number) for number in range(200)))
    assert not stored.full_for("a")
    assert not Reader().tidied(stored).unredeemed


def test_t03_few_namespaces_are_remembered() -> None:
    many = StoredPromises(tuple(promise(number, f"ns-{number}") for number in range(promises.MOST_NAMESPACES + 9)))
    assert len(overdue(Reader(), many).unredeemed) == promises.MOST_NAMESPACES
