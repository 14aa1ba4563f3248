"""Light nodes, and a cluster whose time is virtual."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from apportion.apis import kinds
from apportion.cluster import errors
from pocketkube.clock import LoopClock, VirtualLoop, seconds_of
from pocketkube.kubelet import pod_annotations
from pocketkube.node_pools import Pool
from tests.pocketkube.cluster import embedded, pod, template

LIGHT = [Pool(name="light", nodes=20, cpu="4", light=True)]


async def test_pods_run_and_go_on_light_nodes(tmp_path: Path) -> None:
    async with embedded(tmp_path, pools=LIGHT) as cluster:
        assert not list(cluster.pocketkube.root.iterdir()), "no folder per node"
        spec = {"replicas": 40, "selector": {"matchLabels": {"a": "b"}}, "template": template({"a": "b"})}
        await cluster.create(kinds.DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec})
        await cluster.until(kinds.DEPLOYMENTS, "d", lambda d: d["status"].get("readyReplicas") == 40)
        found = await cluster.list(kinds.PODS)
        assert len({p["status"]["podIP"] for p in found}) == 40
        assert {len([p for p in found if p["spec"]["nodeName"] == f"light-{n}"]) for n in range(1, 21)} == {2}
        with pytest.raises(errors.BadRequest, match="light node"):
            await cluster.logs(found[0]["metadata"]["name"])
        await cluster.patch(kinds.DEPLOYMENTS, "d", {"spec": {"replicas": 0}})
        await cluster.until_pods("a=b", lambda found: not found)


async def test_light_pods_end_as_their_annotations_say(tmp_path: Path) -> None:
    async with embedded(tmp_path, pools=LIGHT) as cluster:
        body = pod("fails", restartPolicy="Never")
        body["metadata"]["annotations"] = {
            pod_annotations.SIMULATED_SECONDS: "0.1",
            pod_annotations.SIMULATED_EXIT_CODE: "3",
        }
        await cluster.create(kinds.PODS, body)
        failed = await cluster.until_phase("fails", "Failed")
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
        await cluster.create(kinds.PODS, pod("ends", "sleep", "0.1", restartPolicy="Never"))
        await cluster.until_phase("ends", "Succeeded")


async def test_a_pod_of_a_job_that_is_deleted_on_a_light_node_is_replaced_and_goes(tmp_path: Path) -> None:
    async with embedded(tmp_path, pools=LIGHT) as cluster:
        await cluster.create(kinds.JOBS, _job("sleep", "1000"))
        (first,) = await cluster.until_pods("job-name=j", lambda found: _running(found) == 1)
        await cluster.delete(kinds.PODS, first["metadata"]["name"])
        await cluster.until_gone(kinds.PODS, first["metadata"]["name"])
        await cluster.until_pods("job-name=j", lambda found: _running(found) == 1)


def _running(pods: list[dict[str, Any]]) -> int:
    return sum(each["status"].get("phase") == "Running" for each in pods)


def test_an_hour_of_work_takes_no_time_on_a_virtual_clock(tmp_path: Path) -> None:
    async def replay() -> float:
        async with embedded(tmp_path, pools=LIGHT, clock=LoopClock()) as cluster:
            await cluster.create(kinds.JOBS, _job("sleep", "3600"))
            await asyncio.sleep(3700)
            done = await cluster.until(kinds.JOBS, "j", lambda j: bool(j["status"].get("completionTime")))
            return seconds_of(done["status"]["completionTime"]) - seconds_of(done["status"]["startTime"])

    began = time.monotonic()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert 3600 <= runner.run(replay()) < 3700
    assert time.monotonic() - began < 60


def _job(*command: str) -> dict[str, Any]:
    return {"metadata": {"name": "j"}, "spec": {"template": template({}, *command, restartPolicy="Never")}}
