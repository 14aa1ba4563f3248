"""`apportion snapshot`: what a cluster is, as a file that decisions can be made on."""

from __future__ import annotations

from pathlib import Path

from apportion.cli import snapshot as command
from apportion.view import snapshot
from tests.cli.cli_runner import called
from tests.scheduler.cluster import ApiCluster


async def test_x03_snapshot_writes_the_fleet_and_who_waits(cluster: ApiCluster, tmp_path: Path) -> None:
    await cluster.node("n1", gpus=2)
    await cluster.pod("waits", slices={"1g.5gb": 1})
    path = tmp_path / "fleet.json"
    code, out, err = await called(command.command, output=path, kubeconfig=cluster.kubeconfig)
    assert (code, out) == (0, ""), err
    loaded = snapshot.load(path.read_bytes())
    assert list(loaded.fleet.nodes["n1"].gpus) == cluster.gpus["n1"]
    assert [request.name for request in loaded.waiting] == ["waits"]
    code, out, err = await called(command.command, kubeconfig=cluster.kubeconfig)
    assert code == 0, err
    assert snapshot.load(out.encode()).fleet.record() == loaded.fleet.record()


async def test_x03_a_file_that_cannot_be_written_is_one_line(cluster: ApiCluster, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "fleet.json"
    code, out, err = await called(command.command, output=path, kubeconfig=cluster.kubeconfig)
    assert (code, out) == (2, "")
    assert str(path) in err
    assert len(err.strip().splitlines()) == 1
