"""The informer: whatever happens on the way, its listeners see every object come, change and go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from apportion.apis.kinds import PODS
from apportion.apis.meta import Bare
from apportion.cluster import informer as informers
from apportion.cluster.client import Client
from apportion.cluster.informer import Informer
from tests.cluster.scripted_api import Fault, ScriptedApi, serving

PATH = "/api/v1/namespaces/default/pods"


class Ledger:
    """What a listener was told, checked as it goes."""

    def __init__(self) -> None:
        self.alive: dict[str, str] = {}
        self.log: list[tuple[str, str]] = []

    def __call__(self, old: Bare | None, new: Bare | None) -> None:
        subject = new or old
        assert subject is not None
        name = subject.metadata.name
        if old is None:
            assert name not in self.alive, "told twice that it came"
            self.log.append(("add", name))
        else:
            assert self.alive[name] == old.metadata.uid
            self.log.append(("change" if new else "delete", name))
        if new is None:
            del self.alive[name]
        else:
            assert old is None or old.metadata.uid == new.metadata.uid
            self.alive[name] = new.metadata.uid


@pytest.fixture
def api() -> ScriptedApi:
    return ScriptedApi()


@pytest.fixture
async def client(api: ScriptedApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    monkeypatch.setattr(informers, "FIRST_BACKOFF_SECONDS", 0.005)
    monkeypatch.setattr(informers, "LONGEST_BACKOFF_SECONDS", 0.05)
    async with serving(api) as client:
        yield client


@asynccontextmanager
async def following(client: Client, **options: object) -> AsyncIterator[tuple[Informer[Bare], Ledger]]:
    informer = Informer(client, PODS, into=Bare, namespace="default", **options)  # type: ignore[arg-type]
    ledger = Ledger()
    informer.on_change(ledger)
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(30):
            await informer.synced()
        yield informer, ledger
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def agreed(api: ScriptedApi, informer: Informer[Bare], ledger: Ledger) -> None:
    async with asyncio.timeout(10):
        while True:
            server = {name: obj["metadata"]["resourceVersion"] for name, obj in api.collections.get(PATH, {}).items()}
            ours = {item.metadata.name: item.metadata.resource_version for item in informer.items()}
            if server == ours:
                break
            await asyncio.sleep(0.005)
    assert ledger.alive == {item.metadata.name: item.metadata.uid for item in informer.items()}


async def becomes(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_it_lists_then_watches(api: ScriptedApi, client: Client) -> None:
    await api.put(PATH, "a")
    async with following(client) as (informer, ledger):
        assert informer.get("a", "default") is not None
        await api.put(PATH, "b")
        await api.put(PATH, "a", spec={"changed": True})
        await api.remove(PATH, "b")
        await agreed(api, informer, ledger)
        await api.put(PATH, "c")
        await agreed(api, informer, ledger)
    assert ledger.log == [("add", "a"), ("add", "b"), ("change", "a"), ("delete", "b"), ("add", "c")]
    assert sum("watch" not in request.query for request in api.requests) == 1


async def test_a_late_listener_is_told_what_is_there(api: ScriptedApi, client: Client) -> None:
    await api.put(PATH, "a")
    async with following(client) as (informer, _):
        late = Ledger()
        informer.on_change(late)
        assert late.log == [("add", "a")]


async def test_objects_that_vanish_while_it_cannot_watch_are_reported_deleted(api: ScriptedApi, client: Client) -> None:
    await api.put(PATH, "stays")
    await api.put(PATH, "goes")
    await api.put(PATH, "comes-back")
    async with following(client) as (informer, ledger):
        api.fail("GET", 500, times=3, watch=False)
        await api.forget_history()
        await api.remove(PATH, "goes")
        await api.remove(PATH, "comes-back")
        await api.put(PATH, "comes-back")
        await api.forget_history()
        await agreed(api, informer, ledger)
        assert informer.get("goes", "default") is None
    changes = ledger.log[3:]
    assert sorted(changes) == [("add", "comes-back"), ("delete", "comes-back"), ("delete", "goes")]
    assert changes.index(("delete", "comes-back")) < changes.index(("add", "comes-back"))


async def test_a_broken_connection_means_a_new_list(api: ScriptedApi, client: Client) -> None:
    await api.put(PATH, "a")

    async def half_an_event(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED","object":{"metad')
        assert request.transport is not None
        request.transport.abort()
        return response

    api.faults.append(Fault(lambda request: "watch" in request.query, half_an_event, times=3))
    async with following(client) as (informer, ledger):
        await api.put(PATH, "b")
        await agreed(api, informer, ledger)
    assert sum("watch" not in request.query for request in api.requests) >= 2


async def test_a_watch_that_ends_in_order_goes_on_where_it_was(api: ScriptedApi, client: Client) -> None:
    await api.put(PATH, "a")

    async def end_at_once(request: web.Request) -> web.StreamResponse:
        return web.Response()

    api.faults.append(Fault(lambda request: "watch" in request.query, end_at_once, times=4))
    async with following(client) as (informer, ledger):
        await api.put(PATH, "b")
        await agreed(api, informer, ledger)
    assert sum("watch" not in request.query for request in api.requests) == 1


async def test_indexes_follow_changes(api: ScriptedApi, client: Client) -> None:
    by_label = {"colour": lambda pod: [pod.metadata.labels["colour"]] if "colour" in pod.metadata.labels else []}

    async def paint(name: str, colour: str) -> None:
        obj = await api.put(PATH, name)
        obj["metadata"]["labels"] = {"colour": colour}
        await api._record("MODIFIED", PATH, obj)

    async with following(client, indexes=by_label) as (informer, _):
        await paint("a", "red")
        await paint("b", "red")
        await becomes(lambda: len(informer.indexed("colour", "red")) == 2)
        await paint("a", "blue")
        await api.remove(PATH, "b")
        await becomes(lambda: not informer.indexed("colour", "red"))
        assert [pod.metadata.name for pod in informer.indexed("colour", "blue")] == ["a"]


async def test_resync_tells_of_everything_again(api: ScriptedApi, client: Client) -> None:
    await api.put(PATH, "a")
    async with following(client, resync_seconds=0.02) as (_, ledger):
        await becomes(lambda: ledger.log.count(("change", "a")) >= 3)
    assert sum("watch" not in request.query for request in api.requests) == 1


class Counted(Bare):
    spec: dict[str, int] = {}


async def test_an_object_that_cannot_be_read_any_more_is_gone_until_it_can(api: ScriptedApi, client: Client) -> None:
    informer = Informer(client, PODS, into=Counted, namespace="default")
    task = asyncio.create_task(informer.run())
    try:
        await api.put(PATH, "a", spec={"n": 1})
        await becomes(lambda: informer.get("a", "default") is not None)
        await api.put(PATH, "a", spec={"n": "many"})
        await becomes(lambda: informer.get("a", "default") is None)
        await api.put(PATH, "a", spec={"n": 2})
        await becomes(lambda: informer.get("a", "default") is not None)
        api.collections[PATH]["a"]["spec"] = {"n": "again"}
        await api.remove(PATH, "a")
        await becomes(lambda: informer.get("a", "default") is None)
        watches = [request for request in api.requests if "watch" in request.query]
        assert len(watches) == 1, "without listing again"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_listener_that_fails_stops_no_other(api: ScriptedApi, client: Client) -> None:
    async with following(client) as (informer, ledger):

        def broken(old: Bare | None, new: Bare | None) -> None:
            raise RuntimeError("a bug of ours")

        informer._listeners.insert(0, broken)
        await api.put(PATH, "a")
        await agreed(api, informer, ledger)


@pytest.mark.parametrize("seed", range(8))
async def test_under_random_faults_it_converges(api: ScriptedApi, client: Client, seed: int) -> None:
    draw = random.Random(seed)
    names = [f"p{number}" for number in range(6)]
    async with following(client) as (informer, ledger):
        for _ in range(60):
            present = set(api.collections.get(PATH, {}))
            name = draw.choice(names)
            if name in present and draw.random() < 0.4:
                await api.remove(PATH, name)
            else:
                await api.put(PATH, name, spec={"n": draw.random()})
            match draw.randrange(8):
                case 0:
                    await api.forget_history()
                case 1:
                    api.fail("GET", draw.choice([429, 500, 503]), headers={"Retry-After": "0"})
                case 2:
                    api.break_connection("GET")
                case 3:
                    await asyncio.sleep(0.01)
        await agreed(api, informer, ledger)
