"""T02: limits of the embedded API server that kube-apiserver does not have, or not these ones."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from apportion.cluster.certificates import Authority
from apportion.cluster.transport import HttpRequest
from pocketkube.api import limits
from pocketkube.api.http import HttpShell
from pocketkube.api.request_attributes import ADMIN
from pocketkube.api.server import ApiServer
from pocketkube.api.storage.store import Bucket, Compacted
from pocketkube.api.turns import Turns
from tests.pocketkube.api.conftest import TOKEN
from tests.pocketkube.api.direct_requests import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    DirectRequests,
    config_map,
)
from tests.pocketkube.api.waiting import until

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
MAP_BUCKET = Bucket("", "configmaps")


@pytest.mark.parametrize(
    ("method", "media"),
    [("POST", "application/json"), ("POST", "application/yaml"), ("PATCH", MERGE_PATCH), ("PATCH", APPLY_PATCH)],
)
async def test_t02_a_request_with_too_many_values_is_refused_before_they_are_built(
    ask: DirectRequests, method: str, media: str
) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"x":[' + b"[]," * 400_000 + b"[]]}"
    path = MAPS if method == "POST" else f"{MAPS}/a?fieldManager=m"
    answer = await ask(method, path, body, media=media)
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
    assert answer.message == f"Request entity too large: limit is {limits.MAX_VALUES} values"


async def test_t02_commas_in_texts_are_no_values(ask: DirectRequests) -> None:
    answer = await ask("POST", MAPS, config_map("csv", {"a": 'x,"y[{' * 100_000}))
    assert answer.code == 201


async def test_t02_a_protobuf_body_with_too_many_values_is_refused(ask: DirectRequests) -> None:
    containers = b"\x12\x00" * 400_000  # spec.containers, each of them empty
    spec = b"\x12" + _length(containers) + containers
    kind = b"\x0a\x02v1\x12\x03Pod"
    body = b"k8s\0" + b"\x0a" + _length(kind) + kind + b"\x12" + _length(spec) + spec
    answer = await ask("POST", PODS, body, media="application/vnd.kubernetes.protobuf")
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")


async def test_t02_moves_of_a_patch_cannot_nest_without_end(ask: DirectRequests) -> None:
    data = {f"a{index}": {} for index in range(1_000)}
    nest = [{"op": "move", "from": f"/data/a{index}", "path": f"/data/a{index - 1}/x"} for index in range(999, 0, -1)]
    await ask("POST", MAPS, config_map("a"))
    patch = [{"op": "replace", "path": "/data", "value": data}, *nest]
    assert (await ask("PATCH", f"{MAPS}/a", patch, media=JSON_PATCH)).code in (400, 422)


async def test_t02_of_many_problems_the_first_thousand_are_told(ask: DirectRequests) -> None:
    spec = {"containers": [{"name": f"C!{index}", "image": "i"} for index in range(5_000)]}
    answer = await ask("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
    causes = answer.body["details"]["causes"]
    assert (answer.code, len(causes)) == (422, limits.MAX_CAUSES + 1)
    assert causes[-1]["message"] == f"Too many: {limits.MAX_CAUSES} problems are shown"


async def test_t02_old_versions_of_large_objects_are_forgotten(ask: DirectRequests, server: ApiServer) -> None:
    await ask("POST", MAPS, config_map("a"))
    await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    first = server.store.revision
    for number in range(30):
        change = {"data": {"a": f"{number}" + "x" * 1_000_000}}
        assert (await ask("PATCH", f"{MAPS}/a", change, media=MERGE_PATCH)).code == 200
    assert len(server.store.changes(MAP_BUCKET, server.store.revision - 3)) == 3
    with pytest.raises(Compacted):  # each change refers to two versions of a megabyte
        server.store.changes(MAP_BUCKET, server.store.revision - 6)
    answer = await ask("GET", f"{MAPS}?resourceVersion={first}&resourceVersionMatch=Exact")
    assert (answer.code, answer.reason) == (410, "Expired")
    others = await ask("GET", f"/api/v1/namespaces?resourceVersion={first}&resourceVersionMatch=Exact")
    assert others.code == 200, "the history of another kind is kept"


async def test_t02_a_watch_that_is_not_read_ends(ask: DirectRequests, server: ApiServer) -> None:
    request = HttpRequest("GET", MAPS, (("watch", "true"),))
    response = await server.handle(request, ADMIN)
    assert response.stream is not None
    await ask("POST", MAPS, config_map("a"))
    for number in range(20):
        await ask("PATCH", f"{MAPS}/a", {"data": {"a": f"{number}" + "x" * 1_000_000}}, media=MERGE_PATCH)
    read = [chunk async for chunk in response.stream]
    assert sum(map(len, read)) < limits.MAX_BACKLOG_BYTES
    assert len(server.watches) == 0


async def test_t02_one_namespace_cannot_fill_the_store(ask: DirectRequests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_NAMESPACE", 1_000_000)
    codes = [(await ask("POST", MAPS, config_map(f"m{n}", {"a": "x" * 100_000}))).code for n in range(12)]
    assert codes == [201] * 9 + [500] * 3
    refused = await ask("POST", MAPS, config_map("more", {"a": "x" * 100_000}))
    assert refused.message == "etcdserver: mvcc: database space exceeded"
    await ask("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
    other = config_map("m", {"a": "x" * 100_000})
    assert (await ask("POST", "/api/v1/namespaces/other/configmaps", other)).code == 201
    assert (await ask("DELETE", f"{MAPS}/m0")).code == 200
    assert (await ask("POST", MAPS, config_map("again", {"a": "x" * 100_000}))).code == 201


async def test_t02_other_requests_are_answered_while_a_large_one_is_worked_on(ask: DirectRequests) -> None:
    """Counted in requests, not in time: some small ones are answered before the large one is."""
    containers = [{"name": f"c{index}", "image": "i"} for index in range(3_000)]
    large = asyncio.create_task(
        ask("POST", f"{PODS}?dryRun=All", {"metadata": {"name": "p"}, "spec": {"containers": containers}})
    )
    answered = 0
    while not large.done():
        assert (await ask("GET", f"{MAPS}?limit=1")).code == 200
        answered += 1
        await asyncio.sleep(0)
    assert (await large).code == 201
    assert answered > 20


async def test_t02_more_large_requests_than_can_wait_are_told_to_try_again(
    shell: HttpShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_LARGE_WAITING", 1)
    body = json.dumps(config_map("a", {f"k{index}": "x" for index in range(40_000)})).encode()
    async with _session(shell, tmp_path) as session:

        async def send() -> tuple[int, str]:
            async with session.post(f"{shell.url}{MAPS}?dryRun=All", data=body) as answer:
                return answer.status, answer.headers.get("Retry-After", "")

        answers = await asyncio.gather(*(send() for _ in range(8)))
    assert (201, "") in answers
    assert (429, "1") in answers
    assert set(answers) == {(201, ""), (429, "1")}


async def test_t02_few_large_requests_are_answered_at_once() -> None:
    turns, begun, most = Turns(), 0, 0

    async def request() -> None:
        nonlocal begun, most
        async with turns.request(limits.LARGE):
            begun += 1
            most = max(most, begun)
            await asyncio.sleep(0)
            begun -= 1

    await asyncio.gather(*(request() for _ in range(limits.MAX_LARGE_WAITING)))
    assert most == limits.MAX_LARGE


async def test_t02_webhooks_can_send_large_requests_while_they_review_one(
    shell: HttpShell, tmp_path: Path, ask: DirectRequests
) -> None:
    """As many large pods are reviewed as large requests are answered at once."""
    large = {"a": "x" * 2 * limits.LARGE}
    pair = (authority := Authority.create("hook")).issue(["localhost"], ["127.0.0.1"], 1)
    async with _session(shell, tmp_path) as session:

        async def review(incoming: web.Request) -> web.Response:
            asked = (await incoming.json())["request"]
            async with session.post(f"{shell.url}{MAPS}?dryRun=All", json=config_map("m", large)) as answer:
                assert answer.status == 201
            response = {"uid": asked["uid"], "allowed": True}
            return web.json_response(
                {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
            )

        hook = web.AppRunner(app := web.Application())
        app.router.add_post("/", review)
        await hook.setup()
        await web.TCPSite(hook, "127.0.0.1", 0, ssl_context=pair.server_context()).start()
        await ask("POST", f"{HOOKS}/mutatingwebhookconfigurations", _pod_webhook(hook.addresses[0][1], authority))

        async def create(number: int) -> int:
            pod = {"containers": [{"name": "c", "image": "i"}]}
            body = {"metadata": {"name": f"p{number}", "annotations": large}, "spec": pod}
            async with session.post(f"{shell.url}{PODS}", json=body) as answer:
                return answer.status

        try:
            async with asyncio.timeout(20):
                assert await asyncio.gather(*map(create, range(limits.MAX_LARGE))) == [201] * limits.MAX_LARGE
        finally:
            await hook.cleanup()


async def test_t02_a_body_that_does_not_come_is_not_waited_for(
    shell: HttpShell, tmp_path: Path, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.2)
    tls = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    reader, writer = await asyncio.open_connection("127.0.0.1", shell.port, ssl=tls, server_hostname="localhost")
    writer.write(f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
    async with asyncio.timeout(20):
        assert b" 408 " in await reader.readline()
    writer.close()


async def test_t02_connections_above_the_limit_are_closed(
    shell: HttpShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 3)
    tls = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    opened = []
    closed = 0
    for _ in range(6):
        try:
            opened.append(await asyncio.open_connection("127.0.0.1", shell.port, ssl=tls, server_hostname="localhost"))
            reader, writer = opened[-1]
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(20):
                closed += not await reader.readline()
        except ConnectionError:
            closed += 1
    assert closed == 3
    for _, writer in opened:
        writer.close()


async def test_t02_hundreds_of_watches_cost_a_write_little(ask: DirectRequests, server: ApiServer) -> None:
    selector = ",".join(f"!k{index}" for index in range(200))
    request = HttpRequest("GET", MAPS, (("watch", "true"), ("labelSelector", selector)))
    streams = [(await server.handle(request, ADMIN)).stream for _ in range(300)]
    async with asyncio.timeout(60):
        for number in range(20):
            assert (await ask("POST", MAPS, config_map(f"m{number}"))).code == 201
    for stream in streams:
        await stream.aclose()  # type: ignore[union-attr]
    await until(lambda: len(server.watches) == 0)


def _session(shell: HttpShell, folder: Path) -> aiohttp.ClientSession:
    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    return aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=tls))


def _pod_webhook(port: int, authority: Authority) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    bundle = base64.b64encode(authority.bundle).decode()
    hook = {"name": "large.hooks.test", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    hook |= {"clientConfig": {"url": f"https://localhost:{port}/", "caBundle": bundle}, "timeoutSeconds": 30}
    return {"metadata": {"name": "large"}, "webhooks": [hook]}


def _length(data: bytes) -> bytes:
    """The length of a message as a varint."""
    size, found = len(data), bytearray()
    while size > 0x7F:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*found, size))
