"""An embedded cluster as a whole: it starts, serves, and stops without leaving anything behind."""

from __future__ import annotations

import asyncio
import gc
import stat
import time
from pathlib import Path

import pytest
import yaml

from apportion.apis import kinds
from apportion.cluster.client import Client
from pocketkube.cluster import EmbeddedCluster
from pocketkube.node_pools import Pool
from tests.pocketkube.cluster import embedded, pod


async def test_it_comes_up_and_leaves_nothing(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = EmbeddedCluster(Pool(name="node", nodes=2).plans(), kubeconfig=kubeconfig)
    before = set(asyncio.all_tasks())
    async with cluster:
        nodes = (await cluster.client().list(kinds.NODES)).items
        assert [node["metadata"]["name"] for node in nodes] == ["node-1", "node-2"]
        assert all(c["status"] == "True" for n in nodes for c in n["status"]["conditions"] if c["type"] == "Ready")
        root = cluster.root
        assert (root / "node-1/var/lib/kubelet/device-plugins/kubelet.sock").is_socket()
        assert len(str(root / "node-1/var/lib/kubelet/device-plugins/kubelet.sock")) < 100
    assert not root.exists()
    assert not kubeconfig.exists()
    gc.collect()
    await asyncio.sleep(0.05)
    assert set(asyncio.all_tasks()) <= before


async def test_r04_only_loopback_tls_a_token_and_a_private_kubeconfig(tmp_path: Path) -> None:
    async with embedded(tmp_path) as cluster:
        path = cluster.pocketkube.kubeconfig
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        config = yaml.safe_load(path.read_text())
        assert config["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")
        async with Client.from_kubeconfig(path) as client:
            assert (await client.get(kinds.NODES, "node-1"))["metadata"]["name"] == "node-1"


async def test_stopping_ends_pods_that_ignore_everything_at_once(tmp_path: Path) -> None:
    begin = 0.0
    async with embedded(tmp_path) as cluster:
        await cluster.create(
            kinds.PODS, pod("p", "sh", "-c", "trap '' TERM; sleep 1000", terminationGracePeriodSeconds=60)
        )
        await cluster.until_phase("p", "Running")
        begin = time.monotonic()
    assert time.monotonic() - begin < 5


async def test_a_node_that_was_deleted_and_created_again_is_ready_again(tmp_path: Path) -> None:
    """As with a real kubelet: it does not create its node again, and reports once somebody has."""
    async with embedded(tmp_path) as cluster:
        await cluster.delete(kinds.NODES, "node-1")
        await cluster.create(kinds.NODES, {"metadata": {"name": "node-1"}})
        await cluster.pod("p")
        await cluster.until_phase("p", "Running")


async def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    async with embedded(tmp_path) as cluster:
        port = int(cluster.pocketkube.url.rpartition(":")[2])
        second = EmbeddedCluster(Pool(name="node").plans(), kubeconfig=tmp_path / "second", port=port)
        with pytest.raises(OSError, match="address already in use"):
            await second.start()
        assert not second.root.exists()
        assert not (tmp_path / "second").exists()
