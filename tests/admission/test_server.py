"""The webhook's HTTPS server: real TLS on loopback, valid reviews, invalid input, overload, shutdown."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from apportion.admission import slice_review
from apportion.admission.admission_review import Question, ReviewAnswer
from apportion.admission.certificates import credentials
from apportion.admission.certificates.credentials import Credentials, Terms
from apportion.admission.pods import ClusterFacts
from apportion.admission.server import AdmissionServer, Limits, Rule
from apportion.cluster.serving.limits import ServerLimits
from tests.admission.reviews import Asker, applied, review
from tests.admission.samples import OFFERS, both, created, resources
from tests.builders.pods import container, pod
from tests.environments.waiting import eventually

NAME = "das-operator-webhook.das-operator.svc"
TERMS = Terms(credentials.service_names("das-operator-webhook", "das-operator"))
QUICK = Limits(drain_seconds=0)
SLICED = pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "2"})])


@asynccontextmanager
async def serving(
    limits: Limits = QUICK, able: Callable[[], bool | str] = lambda: True, rule: Rule | None = None
) -> AsyncIterator[tuple[Asker, int, ssl.SSLContext, Credentials]]:
    issued = credentials.issue(TERMS, datetime.now(UTC))
    context = issued.pair.server_context()
    usual: Rule = lambda question: slice_review.answer(question, lambda _: ClusterFacts(OFFERS))  # noqa: E731
    rules = {"/mutate-slices": rule or usual}
    server = AdmissionServer(rules, lambda: context, able=able, limits=limits)
    port = await server.start("127.0.0.1", 0)
    try:
        yield Asker(port, issued.bundle, NAME), port, context, issued
    finally:
        await server.stop()


async def test_s01_a_pod_is_rewritten_over_tls() -> None:
    async with serving() as (asker, *_):
        after = applied(SLICED, await asker.ask(review(SLICED)))
    assert resources(after) == both({"mig.das.com/1g.5gb": "2", "gpu.das.com/mem": "10"})
    assert after["spec"]["schedulerName"] == "das-scheduler"


async def test_d05_the_same_question_twice_and_dry_runs_get_the_same_answer() -> None:
    async with serving() as (asker, *_):
        first = await asker.ask(review(SLICED))
        assert await asker.ask(review(SLICED, dryRun=True)) == first
        assert "patch" not in await asker.ask(review(applied(SLICED, first)))


async def test_d05_an_update_repeats_what_was_done() -> None:
    live = created(SLICED)
    again = json.loads(json.dumps(live))
    resources(again)["limits"]["nvidia.com/mig-1g.5gb"] = "2"
    async with serving() as (asker, *_):
        assert applied(again, await asker.ask(review(again, old=live, operation="UPDATE"))) == live


async def test_m02_the_template_of_a_job_is_rewritten_and_that_of_a_deployment_is_not() -> None:
    template = {"spec": SLICED["spec"]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": template}}
    deployment = {**job, "apiVersion": "apps/v1", "kind": "Deployment"}
    async with serving() as (asker, *_):
        after = applied(job, await asker.ask(review(job)))
        assert "patch" not in await asker.ask(review(deployment))
    assert resources(after["spec"]["template"]) == both({"mig.das.com/1g.5gb": "2", "gpu.das.com/mem": "10"})
    assert after["spec"]["template"]["metadata"]["annotations"] == {"apportion.io/injected-memory": '{"main":10}'}
    assert applied(after["spec"]["template"], {"allowed": True}) == created(after["spec"]["template"])


async def test_m02_a_refused_job_names_the_field_in_its_template() -> None:
    bad = pod("story", containers=[container(limits={"nvidia.com/mig-1g.5gb": "-1"})])
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": bad["spec"]}},
    }
    async with serving() as (asker, *_):
        response = await asker.ask(review(job))
    assert "spec.template.spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]" in response["status"]["message"]


async def test_s03_d04_a_refusal_names_field_value_and_fix() -> None:
    bad = pod("story", containers=[container(limits={"nvidia.com/mig-9g.99gb": "1"})])
    async with serving() as (asker, *_):
        response = await asker.ask(review(bad))
    assert response["allowed"] is False
    status = response["status"]
    assert status["code"] == 400
    assert status["message"].startswith(
        "spec.containers[0].resources.limits[nvidia.com/mig-9g.99gb]: '9g.99gb': no GPU model has this MIG profile"
    )
    assert status["details"]["causes"][0]["reason"] == "UnknownProfile"


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
async def test_d02_other_operations_pass(operation: str) -> None:
    async with serving() as (asker, *_):
        question = review(SLICED, operation=operation, object=None)
        assert await asker.ask(question) == {"uid": question["request"]["uid"], "allowed": True}


def broken(**changes: Any) -> bytes:
    question = review(SLICED)
    question["request"].update(changes)
    return json.dumps(question).encode()


GARBAGE = {
    "empty": b"",
    "no json": b"\xff\xfe\x00",
    "a list": b"[]",
    "null": b"null",
    "other kind": json.dumps({**review(SLICED), "kind": "Pod"}).encode(),
    "beta": json.dumps({**review(SLICED), "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
    "no request": json.dumps({**review(SLICED), "request": None}).encode(),
    "no uid": broken(uid=""),
    "uid no string": broken(uid=7),
    "no object": broken(object=None),
    "object a list": broken(object=[1]),
    "kind no object": broken(kind="Pod"),
    "no old object": broken(operation="UPDATE"),
    "deep": b'{"apiVersion":' * 100_000,
    "deep object": json.dumps(review(SLICED)).encode().replace(b'"busybox:1.36"', b"[" * 50_000),
}


@pytest.mark.parametrize("name", sorted(GARBAGE))
async def test_d04_garbage_is_answered_with_a_clear_400(name: str) -> None:
    async with serving() as (asker, *_):
        status, text = await asker.post("/mutate-slices", GARBAGE[name])
        assert status == 400
        assert text.strip()
        assert "Traceback" not in text
        assert (await asker.ask(review(SLICED)))["allowed"] is True


async def test_d04_wrong_content_type_path_and_method() -> None:
    async with serving() as (asker, *_):
        assert (await asker.post("/mutate-slices", b"{}", "text/plain"))[0] == 415
        assert (await asker.post("/elsewhere", b"{}"))[0] == 404


async def test_d04_a_body_that_is_too_large_is_refused() -> None:
    async with serving(Limits(server=ServerLimits(body_bytes=10_000), drain_seconds=0)) as (asker, *_):
        status, text = await asker.post("/mutate-slices", b"x" * 20_000)
        assert status == 413
        assert "10000 bytes" in text


async def test_d02_before_it_knows_the_cluster_it_judges_nothing() -> None:
    async with serving(able=lambda: "waiting for nodes") as (asker, *_):
        status, text = await asker.post("/mutate-slices", json.dumps(review(SLICED)).encode())
    assert status == 503
    assert "waiting for nodes" in text


async def test_d02_slow_senders_are_cut_off_and_do_not_block_others() -> None:
    limits = Limits(server=ServerLimits(read_seconds=0.5), drain_seconds=0)
    async with serving(limits) as (asker, port, _, issued):
        context = ssl.create_default_context(cadata=issued.bundle.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=NAME)
        writer.write(
            b"POST /mutate-slices HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
        )
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), 5)
        assert b" 408 " in line
        writer.close()
        assert (await asker.ask(review(SLICED)))["allowed"] is True


async def test_r03_a_renewed_certificate_is_served_without_a_restart() -> None:
    async with serving() as (asker, port, context, _):
        assert (await asker.ask(review(SLICED)))["allowed"] is True
        other = credentials.issue(TERMS, datetime.now(UTC))
        other.pair.load_into(context)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await asker.ask(review(SLICED))
        assert (await Asker(port, other.bundle, NAME).ask(review(SLICED)))["allowed"] is True


async def test_r02_on_stop_requests_in_flight_are_answered() -> None:
    arrived: list[str] = []
    decided = asyncio.Event()

    async def slow(question: Question) -> ReviewAnswer:
        arrived.append(question.uid)
        await decided.wait()
        return slice_review.answer(question, lambda _: ClusterFacts(OFFERS))

    async with serving(rule=slow) as (asker, *_):
        asked = [asyncio.create_task(asker.ask(review(SLICED))) for _ in range(20)]
        await eventually(lambda: len(arrived) == len(asked), seconds=60)
        asyncio.get_running_loop().call_later(0.3, decided.set)
    assert all(answer["allowed"] for answer in await asyncio.gather(*asked))


async def test_r02_reviews_that_wait_for_a_decision_do_not_keep_others_from_being_read() -> None:
    decided = asyncio.Event()
    arrived: list[str] = []

    async def slow(question: Question) -> ReviewAnswer:
        arrived.append(question.uid)
        await decided.wait()
        return slice_review.answer(question, lambda _: ClusterFacts(OFFERS))

    limits = Limits(waiting=3, seconds=30, drain_seconds=0)
    async with serving(limits, rule=slow) as (asker, *_):
        asked = [asyncio.create_task(asker.ask(review(SLICED))) for _ in range(3)]
        await eventually(lambda: len(arrived) == len(asked), seconds=60)
        status, text = await asker.post("/mutate-slices", json.dumps(review(SLICED)).encode())
        assert status == 503
        assert "too many concurrent reviews" in text
        decided.set()
        assert all(answer["allowed"] for answer in await asyncio.gather(*asked))
