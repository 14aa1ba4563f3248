"""The simulator's log, and the small commands around the example (F09, F11)."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from apportion.apis import kinds, names
from apportion.apis.meta import ObjectMeta
from apportion.apis.nodes import Node, NodeStatus
from apportion.cli import cluster_files, smi
from apportion.cluster.client import Client
from apportion.emulation.nvidia_smi import script
from apportion.emulation.nvidia_smi.machine import Machine, VisibleGpu
from apportion.emulation.simulator import Simulator, describe
from pocketkube.api.in_process_transport import LocalTransport
from pocketkube.api.server import ApiServer
from tests.story.terminal import EXAMPLE, Terminal

GPUS = json.dumps([{"product": "NVIDIA-H200", "count": 4, "memoryMiB": 71680}])


def test_f11_a_node_is_described_in_one_line() -> None:
    meta = ObjectMeta(annotations={names.EMULATED_GPUS: GPUS}, labels={names.MIG_CONFIG_STATE_LABEL: "success"})
    capacity: dict[str, str | int | float] = {
        "cpu": "4",
        "nvidia.com/gpu": "0",
        "nvidia.com/mig-1g.10gb": "4",
        "nvidia.com/mig-2g.20gb": "12",
    }
    node = Node(metadata=meta, status=NodeStatus(capacity=capacity))
    told = "4 x NVIDIA-H200 71680 MiB; mig-2g.20gb 12, mig-1g.10gb 4, gpu 0; layout success"
    assert describe(node) == told
    assert "is invalid" in describe(Node(metadata=ObjectMeta(annotations={names.EMULATED_GPUS: "{"})))


async def test_f11_a_node_that_is_given_gpus_is_labelled_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = ApiServer()
    client = Client(LocalTransport(server))
    await client.create(kinds.NODES, {"metadata": {"name": "plain"}})
    await client.create(kinds.NODES, {"metadata": {"name": "gpu", "annotations": {names.EMULATED_GPUS: GPUS}}})
    task = asyncio.create_task(Simulator(client).run("127.0.0.1:0"))
    try:
        async with asyncio.timeout(30):
            while "node gpu: 4 x NVIDIA-H200" not in caplog.text:  # noqa: ASYNC110  a log has no event
                await asyncio.sleep(0.02)
        marked = await client.get(kinds.NODES, "gpu")
        assert marked["metadata"]["labels"][names.MIG_CAPABLE_LABEL] == "true"
        assert "labels" not in (await client.get(kinds.NODES, "plain"))["metadata"]
        assert "node plain" not in caplog.text
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_f09_the_command_answers_for_a_node_and_names_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    none = CliRunner().invoke(smi.app, ["-L"])
    assert none.exit_code == 2
    assert "none" in none.output
    for node in ("a", "b"):
        path = tmp_path / "root" / node / smi.FILE
        path.parent.mkdir(parents=True)
        path.write_text(script.render(Machine((VisibleGpu(0, f"GPU-{node}", "NVIDIA A30", 24576),))))
    mine = cluster_files.mine("here")
    mine.root = str(tmp_path / "root")
    cluster_files.prepare_folder()
    cluster_files.write(mine)
    listed = CliRunner().invoke(smi.app, ["--node", "b", "-L"])
    assert (listed.exit_code, listed.output) == (0, "GPU 0: NVIDIA A30 (UUID: GPU-b)\n")
    unclear = CliRunner().invoke(smi.app, ["-L"])
    assert unclear.exit_code == 2
    assert "a, b" in unclear.output
    query = ["--node", "a", "--query-gpu=nonsense", "--format=csv"]
    assert CliRunner().invoke(smi.app, query).exit_code == 2


@pytest.mark.kubectl
def test_f11_kind_lists_the_commands_that_it_supports(tmp_path: Path) -> None:
    terminal = Terminal(EXAMPLE, tmp_path)
    assert terminal.run("kind get clusters") == "No kind clusters found.\n"
    assert "supported commands: kind delete cluster" in terminal.run("kind create cluster", code=1)
    assert "no cluster 'x' is running" in terminal.run("kind delete cluster --name x")
