"""`apportion why` and `top` about pods that share GPUs, as people call them. They say what the scheduler said."""

from __future__ import annotations

import json
from typing import Any

from apportion.apis import kinds
from apportion.cli import top
from tests.cli.cli_runner import called
from tests.cli.test_why import asked, event_of
from tests.scheduler.cluster import ApiCluster, scheduling
from tests.scheduler.sharing.test_shares import (
    A100_MIB,
    bind,
    fail,
    requested,
    requested_for,
    share,
    shared_node,
    switch,
)


async def shown(cluster: ApiCluster) -> list[dict[str, Any]]:
    code, out, err = await called(top.command, output="json", kubeconfig=cluster.kubeconfig)
    assert code == 0, err
    (node,) = json.loads(out)["nodes"]
    gpus: list[dict[str, Any]] = node["gpus"]
    return gpus


async def test_x01_x05_a_share_is_followed_from_the_binder_to_its_gpu(sharing: ApiCluster) -> None:
    (gpu,) = await shared_node(sharing, gpus=1)
    async with scheduling(sharing):
        await sharing.pod("a", **share(fraction="0.5"))
        (request,) = await requested(sharing, "a")
        answer = await asked(sharing, "a")
        assert (answer["state"], answer["node"]) == ("binding", "n1")
        assert answer["sentence"].startswith("The pod has been waiting for the binder for ")
        assert f"{A100_MIB // 2} of {A100_MIB} MiB of GPU {gpu}" in answer["sentence"]
        assert "does not exist yet" in answer["sentence"]
        assert [each["bound"] for each in (await shown(sharing))[0]["shares"]] == [False]
        await bind(sharing, request)
        await sharing.bound("a")
    (found,) = await shown(sharing)
    assert found["shares"] == [
        {"owner": "default/a", "milli": 500, "mib": A100_MIB // 2, "bound": True, "used_mib": None}
    ]
    assert (found["uuid"], found["memory_mib"], found["free_mib"]) == (gpu, A100_MIB, A100_MIB // 2)
    await sharing.set_phase("a", "Running")
    answer = await asked(sharing, "a")
    assert answer["sentence"] == f"The pod is running on node n1 with {A100_MIB // 2} of {A100_MIB} MiB of GPU {gpu}."
    assert answer["shares"][0]["mib"] == A100_MIB // 2


async def test_x01_why_and_the_event_of_a_waiting_share_are_one_sentence(sharing: ApiCluster) -> None:
    await shared_node(sharing, gpus=1)
    async with scheduling(sharing):
        await sharing.pod("a", **share(memory=39460))
        (request,) = await requested(sharing, "a")
        await bind(sharing, request)
        await sharing.bound("a")
        await sharing.pod("late", **share(memory=2000))
        condition = await sharing.waits("late")
        event = await event_of(sharing, "late")
        answer = await asked(sharing, "late")
        assert answer["sentence"] == condition == event
        assert "needs 2000 MiB; the most free on one GPU is 1500 of 40960 MiB" in condition
        assert answer["layer"] == "memory"
        (group,) = answer["groups"]
        assert (group["need"], group["free"], group["total"]) == (2000, 1500, A100_MIB)
        change = answer["cheapestChange"]
        assert (change["kind"], change["instead"]) == ("profile", "1500")
        await sharing.pod("smaller", **share(memory=1500))
        await requested_for(sharing, "smaller")


async def test_x01_a_request_that_failed_is_told_alike(sharing: ApiCluster) -> None:
    await shared_node(sharing, gpus=1)
    async with scheduling(sharing):
        await sharing.pod("a", **share(fraction="0.5"))
        (request,) = await requested(sharing, "a")
    await fail(sharing, request, "the reservation pod did not start")
    answer = await asked(sharing, "a")
    assert (answer["state"], answer["layer"]) == ("waiting", "placement")
    assert "binding the pod failed and will be retried: the reservation pod did not start" in answer["sentence"]


async def test_x01_g01_with_sharing_off_the_answer_says_how_to_enable_it(sharing: ApiCluster) -> None:
    await shared_node(sharing, gpus=1)
    await switch(sharing, on=False)
    async with scheduling(sharing):
        await sharing.pod("a", **share(fraction="0.5"))
        condition = await sharing.waits("a")
    answer = await asked(sharing, "a")
    assert answer["sentence"] == condition
    assert "spec.admission.gpuSharing: true in the Config kai-config" in condition
    config = await sharing.client.get(kinds.KAI_CONFIGS, "kai-config")
    assert config["spec"]["admission"]["gpuSharing"] is False
