"""`apportion top`: the picture of every GPU, as text for people and as JSON for machines."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from apportion.apis import kinds, names
from apportion.cli import top
from tests.cli.cli_runner import called
from tests.scheduler.cluster import NAMESPACE, ApiCluster, scheduling


async def test_x05_top_shows_every_gpu_its_slices_by_pod_and_who_waits(each_cluster: ApiCluster) -> None:
    cluster = each_cluster
    await cluster.node("mixed", gpus=3, mig=1, resources={names.NVIDIA_GPU: "2"})
    async with scheduling(cluster):
        await cluster.pod("whole", limits={names.NVIDIA_GPU: "1"})
        await cluster.pod("sliced", slices={"3g.20gb": 2})
        await cluster.bound("whole", "sliced")
        await cluster.pod("waits", slices={"1g.5gb": 1})
        sentence = await cluster.waits("waits")
    code, out, err = await called(top.command, output="json", kubeconfig=cluster.kubeconfig)
    assert code == 0, err
    found = json.loads(out)
    (node,) = found["nodes"]
    assert [len(gpu["slices"]) for gpu in node["gpus"]] == [2, 0, 0]
    assert {piece["owner"] for piece in node["gpus"][0]["slices"]} == {"default/sliced"}
    assert sorted(gpu["owner"] for gpu in node["gpus"]) == ["", "", "default/whole"]
    assert found["waiting"] == [{"pod": "default/waits", "reason": sentence}]
    code, out, err = await called(top.command, once=True, kubeconfig=cluster.kubeconfig)
    assert code == 0, err
    assert "1 node, 3 GPUs: 2 slices, 1 allocated whole, 1 free; 1 pod pending" in out
    assert "3g.20gb" in out
    assert "default/whole" in out
    assert "pending default/waits" in out
    assert "\x1b" not in out


async def test_x05_a_node_that_takes_no_slices_is_marked(cluster: ApiCluster) -> None:
    await cluster.node("n1", agent=False)
    _, out, _ = await called(top.command, once=True, kubeconfig=cluster.kubeconfig)
    assert "the agent is not ready" in out
    await cluster.client.delete(kinds.NODE_ACCELERATORS, "n1", namespace=NAMESPACE)
    _, out, _ = await called(top.command, once=True, kubeconfig=cluster.kubeconfig)
    assert "0 nodes, 0 GPUs" in out


async def test_x05_gpus_that_were_cut_beforehand_show_their_slices(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    report = await cluster.client.get(kinds.NODE_ACCELERATORS, "n1", namespace=NAMESPACE)
    fixed = [{"profile": "3g.20gb", "start": 0, "size": 4, "uuid": "MIG-1"}]
    gpu = {**report["status"]["gpus"][0], "profiles": [], "fixed": fixed}
    await cluster.client.patch(
        kinds.NODE_ACCELERATORS, "n1", {"status": {"gpus": [gpu]}}, namespace=NAMESPACE, subresource="status"
    )
    _, out, _ = await called(top.command, once=True, kubeconfig=cluster.kubeconfig)
    assert "3g.20gb" in out
    assert "1 slice, 0 allocated whole, 0 free" in out


async def test_x05_the_pods_that_hold_whole_gpus_and_static_slices_are_named(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=3, mig=1, resources={names.NVIDIA_GPU: "2"})
    uids = {
        name: await cluster.pod(name, scheduler="default-scheduler", node="n1", limits=limits)
        for name, limits in (("whole", {names.NVIDIA_GPU: "1"}), ("static", {"nvidia.com/mig-3g.20gb": "1"}))
    }
    report = await cluster.client.get(kinds.NODE_ACCELERATORS, "n1", namespace=NAMESPACE)
    first, second, third = report["status"]["gpus"]
    fixed = {"profile": "3g.20gb", "start": 0, "size": 4, "uuid": "MIG-1", "podUID": uids["static"]}
    first |= {"profiles": [], "fixed": [fixed], "holders": [{"podUID": uids["static"], "kind": "static"}]}
    third |= {"holders": [{"podUID": uids["whole"], "kind": "whole"}]}
    await cluster.client.patch(
        kinds.NODE_ACCELERATORS,
        "n1",
        {"status": {"gpus": [first, second, third]}},
        namespace=NAMESPACE,
        subresource="status",
    )
    _, out, _ = await called(top.command, output="json", kubeconfig=cluster.kubeconfig)
    (node,) = json.loads(out)["nodes"]
    assert [gpu["owner"] for gpu in node["gpus"]] == ["", "", "default/whole"]
    assert [piece["owner"] for piece in node["gpus"][0]["slices"]] == ["default/static"]


async def test_x05_the_memory_that_pods_use_is_shown_where_the_agent_measures_it(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=3, mig=2, resources={names.NVIDIA_GPU: "1"})
    async with scheduling(cluster):
        uids = {"sliced": await cluster.pod("sliced", slices={"3g.20gb": 2})}
        await cluster.bound("sliced")
    for name, limits in (("whole", {names.NVIDIA_GPU: "1"}), ("static", {"nvidia.com/mig-3g.20gb": "1"})):
        uids[name] = await cluster.pod(name, scheduler="default-scheduler", node="n1", limits=limits)
    claims = await cluster.claims()
    for claim in claims:
        patch = {"status": {"state": "inUse", "migUUID": f"MIG-{claim.name}"}}
        await cluster.client.patch(
            kinds.ALLOCATION_CLAIMS, claim.name, patch, namespace=NAMESPACE, subresource="status"
        )
    report = await cluster.client.get(kinds.NODE_ACCELERATORS, "n1", namespace=NAMESPACE)
    gpus = report["status"]["gpus"]
    static = next(gpu for gpu in gpus if gpu["migEnabled"] and gpu["uuid"] != claims[0].spec.gpu_uuid)
    fixed = {"profile": "3g.20gb", "start": 0, "size": 4, "uuid": "MIG-1", "podUID": uids["static"]}
    static |= {"profiles": [], "fixed": [fixed], "holders": [{"podUID": uids["static"], "kind": "static"}]}
    gpus[2] |= {"holders": [{"podUID": uids["whole"], "kind": "whole"}]}
    used = [("whole", gpus[2]["uuid"], 30000), ("static", "MIG-1", 1000)]
    used += [("sliced", f"MIG-{claim.name}", 700) for claim in claims]
    listed = [{"podUID": uids[pod], "uuid": device, "usedMiB": mib} for pod, device, mib in used]
    await cluster.client.patch(
        kinds.NODE_ACCELERATORS,
        "n1",
        {"status": {"gpus": gpus, "memoryUse": listed}},
        namespace=NAMESPACE,
        subresource="status",
    )
    _, out, _ = await called(top.command, output="json", kubeconfig=cluster.kubeconfig)
    (node,) = json.loads(out)["nodes"]
    assert [gpu["used_mib"] for gpu in node["gpus"]] == [None, None, 30000]
    pieces = [piece for gpu in node["gpus"] for piece in gpu["slices"]]
    assert sorted((piece["owner"], piece["used_mib"]) for piece in pieces) == [
        ("default/sliced", 700),
        ("default/sliced", 700),
        ("default/static", 1000),
    ]
    _, out, _ = await called(top.command, once=True, kubeconfig=cluster.kubeconfig)
    assert "default/sliced 2 x 3g.20gb, 1400 MiB used" in out
    assert "default/static 3g.20gb, 1000 MiB used" in out
    assert "default/whole, 30000 of 40960 MiB used" in out


async def test_x05_on_a_terminal_it_is_live_and_ends_with_ctrl_c(cluster: ApiCluster) -> None:
    await cluster.node("n1", gpus=1)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "TERM": "xterm-256color", "COLUMNS": "120"}
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    with _interruptible():
        child = subprocess.Popen(  # noqa: ASYNC220  it needs a terminal
            [sys.executable, "-m", "apportion", "top"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
    os.close(theirs)
    try:
        await _shows(ours, "1 node, 1 GPU: 0 slices")
        async with scheduling(cluster):
            await cluster.pod("a", slices={"1g.5gb": 1})
            await cluster.bound("a")
            await _shows(ours, "default/a")
        child.send_signal(signal.SIGINT)
        await _ended(child, ours)
        assert child.returncode == 0
    finally:
        child.kill()
        child.wait()
        os.close(ours)


@contextmanager
def _interruptible() -> Iterator[None]:
    """For children, as on a terminal: what a script starts in the background ignores SIGINT, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def _shows(terminal: int, wanted: str, within: float = 30) -> None:
    def read() -> bool:
        seen = b""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 65536)
                if wanted.encode() in seen:
                    return True
        return False

    assert await asyncio.to_thread(read), f"{wanted!r} was not shown"


async def _ended(child: subprocess.Popen[bytes], terminal: int, within: float = 30) -> None:
    """Read on until the process has ended: one that writes to a full terminal waits for its reader."""

    def drained() -> None:
        deadline = time.monotonic() + within
        while child.poll() is None and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                with suppress(OSError):
                    os.read(terminal, 65536)

    await asyncio.to_thread(drained)
    assert child.poll() is not None, "it goes on after Ctrl-C"
