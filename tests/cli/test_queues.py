"""`apportion queues` and the pending pods of `apportion top`: who is entitled to what, and who waits where."""

from __future__ import annotations

import json

from apportion.apis import kinds, names
from apportion.cli import queues, top
from tests.builders import groups
from tests.cli.cli_runner import called
from tests.scheduler.cluster import ApiCluster, scheduling

GPU = names.NVIDIA_GPU


async def crowded(cluster: ApiCluster) -> None:
    """Two GPUs, both used by queue a; one pod of b and one of an unknown queue wait."""
    await cluster.node("n1", gpus=2, mig=0, resources={GPU: "2"})
    department = groups.queue("department", resources={"gpu": {"quota": 1.5}, "cpu": {"quota": 4000}})
    a = groups.queue("a", parent="department", gpus=2, priority=200)
    for queue in (department, a, groups.queue("b", gpus=0), groups.queue("orphan", parent="missing")):
        await cluster.client.create(kinds.QUEUES, queue)
    async with scheduling(cluster):
        for name in ("a1", "a2"):
            await cluster.pod(name, limits={GPU: "1"}, labels={names.QUEUE_LABEL: "a"})
        await cluster.bound("a1", "a2")
        await cluster.pod("b1", limits={GPU: "1"}, labels={names.QUEUE_LABEL: "b"})
        await cluster.pod("lost", limits={GPU: "1"}, labels={names.QUEUE_LABEL: "nowhere"})
        await cluster.waits("b1")
        await cluster.waits("lost")


async def test_q12_queues_shows_the_tree_with_use_shares_conditions_and_who_waits(each_cluster: ApiCluster) -> None:
    await crowded(each_cluster)
    code, out, err = await called(queues.command, kubeconfig=each_cluster.kubeconfig)
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith("2 GPUs in 4 queues\n")
    assert "\x1b" not in out
    rows = {line[0]: line[2:] for line in lines if len(line) > 9}
    assert rows["department"] == ["2", "1.75", "1.5", "-", "2", "0", "1", "100", "OverQuota,", "Oversubscribed"]
    assert rows["a"] == ["2", "2", "2", "-", "2", "0", "1", "200"]
    assert rows["b"] == ["0", "0.25", "0", "-", "0", "1", "1", "100"]
    assert "\n  a " in out, "indented below its parent"
    assert "department: 2 of a quota of 1.5 GPUs in use" in out
    assert "orphan: its parent queue missing does not exist: create it" in out
    assert "1 pending pod names queue nowhere, which does not exist" in out

    _, out, _ = await called(queues.command, output="json", kubeconfig=each_cluster.kubeconfig)
    found = json.loads(out)
    shown = {queue["name"]: queue for queue in found["queues"]}
    assert shown["b"]["fairShare"]["gpuMilli"] == 250
    assert [each["type"] for each in shown["orphan"]["conditions"]] == ["Orphan"]
    assert found["unknown"] == {"nowhere": 1}

    _, out, _ = await called(queues.command, resource="cpu", kubeconfig=each_cluster.kubeconfig)
    (row,) = (line.split() for line in out.splitlines() if line.startswith("department "))
    assert row[4] == "4", "cores"


async def test_x05_top_shows_who_waits_in_which_queue(each_cluster: ApiCluster) -> None:
    await crowded(each_cluster)
    code, out, err = await called(top.command, once=True, kubeconfig=each_cluster.kubeconfig)
    assert code == 0, err
    text = " ".join(out.split())
    assert "queue b 0 of a fair share of 0.25 GPUs in use (quota 0); 1 pod pending pending default/b1 0/1 nodes" in text
    assert "queue nowhere does not exist; 1 pod pending pending default/lost Cannot be scheduled now" in text
    _, out, _ = await called(top.command, output="json", kubeconfig=each_cluster.kubeconfig)
    found = json.loads(out)
    assert {each["pod"]: each["queue"] for each in found["waiting"]} == {"default/b1": "b", "default/lost": "nowhere"}
    assert found["queues"][0] == {"name": "b", "usedMilli": 0, "fairShareMilli": 250, "pending": 1}
