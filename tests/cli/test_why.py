"""`apportion why` as people call it: a process, a pod's name, an answer. It says what the scheduler said."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from apportion.apis import kinds, names
from apportion.cli import why
from tests.cli.cli_runner import called
from tests.scheduler.cluster import ApiCluster, scheduling, until


async def asked(cluster: ApiCluster, pod: str) -> dict[str, Any]:
    code, out, err = await called(why.command, pod=pod, output="json", kubeconfig=cluster.kubeconfig)
    assert code == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


async def event_of(cluster: ApiCluster, pod: str) -> str:
    uid = (await cluster.get(pod)).uid

    async def newest() -> str:
        listing = await cluster.client.list(kinds.EVENTS, namespace="default")
        told = [e for e in listing.items if e["involvedObject"]["uid"] == uid and e["reason"] == "FailedScheduling"]
        return max(told, key=lambda e: int(e["metadata"]["resourceVersion"]))["message"] if told else ""

    return await until(newest)


async def test_x01_why_says_what_the_event_and_the_condition_say(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=1)
    await cluster.node("n2", gpus=1)
    await cluster.node("plain", gpus=0, agent=False)
    await cluster.pod("low", slices={"7g.40gb": 1})
    await cluster.pod("high", slices={"7g.40gb": 1})
    async with scheduling(cluster):
        await cluster.bound("low", "high")
        await cluster.pod("waits", slices={"3g.20gb": 1})
        condition = await cluster.waits("waits")
        event = await event_of(cluster, "waits")
    answer = await asked(cluster, "waits")
    assert answer["sentence"] == answer["conditionMessage"] == condition == event
    assert (answer["state"], answer["layer"], answer["code"]) == ("waiting", "placement", "NoFreePlace")
    groups = {group["code"]: group for group in answer["groups"]}
    assert groups["NoFreePlace"]["nodes"] == ["n1", "n2"]
    assert groups["NoFreePlace"]["free"] == 0
    assert groups["NotMigCapable" if "NotMigCapable" in groups else "AgentNotReady"]["nodes"] == ["plain"]
    assert answer["cheapestChange"]["kind"] == "free"
    assert answer["cheapestChange"]["pods"][0] in {"default/low", "default/high"}


async def test_x01_the_cheapest_change_admits_the_pod_when_it_is_made(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1", gpus=1)
    async with scheduling(cluster):
        await cluster.pod("first", slices={"4g.20gb": 1})
        await cluster.bound("first")
        await cluster.pod("second", slices={"4g.20gb": 1})
        assert await cluster.waits("second") == (await asked(cluster, "second"))["sentence"]
        change = (await asked(cluster, "second"))["cheapestChange"]
        assert (change["kind"], change["subject"]) == ("profile", "4g.20gb")
        await cluster.pod("smaller", slices={change["instead"]: 1})
        await cluster.bound("smaller")


async def test_x01_a_share_that_nobody_serves_is_told_alike(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1, mig=0, resources={names.NVIDIA_GPU: "1"})
    async with scheduling(cluster):
        await cluster.pod("half", scheduler=names.KAI_SCHEDULER, annotations={names.GPU_FRACTION: "0.5"})
        condition = await cluster.waits("half")
    answer = await asked(cluster, "half")
    assert (answer["sentence"], answer["code"]) == (condition, "NoSharing")


async def test_x01_the_sentence_is_about_the_end_of_the_cycle(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    await cluster.pod("large", slices={"7g.40gb": 2}, priority=100)
    for number in range(3):
        await cluster.pod(f"small-{number}", slices={"1g.5gb": 1})
    async with scheduling(cluster):
        await cluster.bound("small-0", "small-1", "small-2")
        condition = await cluster.waits("large")
    assert (await asked(cluster, "large"))["sentence"] == condition


async def test_x01_pods_that_do_not_wait_for_us_are_told_apart(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("n1")
    async with scheduling(cluster):
        await cluster.pod("there", slices={"1g.5gb": 1})
        await cluster.bound("there")
    await cluster.pod("fits", slices={"1g.5gb": 1})
    await cluster.pod("gated", slices={"1g.5gb": 1}, gates=["example.com/wait"])
    await cluster.pod("foreign", scheduler="somebody-else")
    await cluster.pod("odd", slices={"1g.5gb": 1}, annotations={names.POLICY: "luck"})
    answers = {name: await asked(cluster, name) for name in ("there", "fits", "gated", "foreign", "odd")}
    assert {name: answer["state"] for name, answer in answers.items()} == {
        "there": "placed",
        "fits": "fits",
        "gated": "gated",
        "foreign": "foreign",
        "odd": "invalid",
    }
    assert [piece["profile"] for piece in answers["there"]["slices"]] == ["1g.5gb"]
    assert "example.com/wait" in answers["gated"]["sentence"]
    assert answers["gated"]["layer"] == answers["odd"]["layer"] == "admission"
    assert "somebody-else" in answers["foreign"]["sentence"]
    assert "there is no leader" in answers["fits"]["sentence"], "the one of this test has given its lease back"
    assert "luck" in answers["odd"]["sentence"]
    await cluster.set_phase("there", "Running")
    assert (await asked(cluster, "there"))["state"] == "running"
    await cluster.set_phase("there", "Succeeded")
    assert (await asked(cluster, "default/there"))["state"] == "ended"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"pod": "nobody"}, 1, '"nobody" not found'),
        ({"pod": "nobody", "namespace": "other"}, 1, '"nobody" not found'),
        ({"pod": "a/b", "namespace": "c"}, 2, "NAMESPACE/NAME"),
        ({"pod": "nobody", "kubeconfig": Path("/does/not/exist")}, 2, "/does/not/exist"),
    ],
)
async def test_x01_what_cannot_be_answered_is_said_in_one_line(
    cluster: ApiCluster, options: dict[str, Any], code: int, said: str
) -> None:
    returned, out, err = await called(why.command, **{"kubeconfig": cluster.kubeconfig, **options})
    assert (returned, out) == (code, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1


async def test_x01_for_people_it_is_a_process_that_prints_text_without_colours(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    await cluster.pod("huge", slices={"7g.40gb": 2})
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "apportion", "why", "huge"), env=environment, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out = (await child.communicate())[0].decode()
    assert child.returncode == 0
    assert "default/huge is blocked by: placement" in out
    assert "NoFreePlace 7g.40gb" in out
    assert "\x1b" not in out
