"""Topology files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.apis import names
from apportion.emulation.cluster import topology


def test_s11_the_default_is_one_node_with_two_a100() -> None:
    (node,) = topology.default().nodes()
    assert node.labels[names.MIG_CAPABLE_LABEL] == "true"
    assert json.loads(node.annotations[names.EMULATED_GPUS]) == [
        {"product": "NVIDIA A100-PCIE-40GB", "count": 2, "mig": True}
    ]
    assert [node.name for node in topology.default(3).nodes()] == ["node-1", "node-2", "node-3"]


def test_g01_with_sharing_one_more_node_has_gpus_that_can_be_shared(tmp_path: Path) -> None:
    plan = topology.default(2, sharing=True)
    assert plan.sharing
    assert [node.name for node in plan.nodes()] == ["node-1", "node-2", "whole-gpu-node-1"]
    assert json.loads(plan.nodes()[2].annotations[names.EMULATED_GPUS]) == [
        {"product": "NVIDIA A100-PCIE-40GB", "count": 2, "mig": False}
    ]
    assert not topology.default().sharing
    path = tmp_path / "t.yaml"
    for text, sharing in (("", False), ("sharing: true", True), ("sharing: false", False)):
        path.write_text(f"pools: [{{name: a}}]\n{text}")
        assert topology.load(path).sharing is sharing


def test_pools_have_labels_taints_zones_and_their_own_gpus(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(
        """
        pools:
          - name: small
            nodes: 3
            labels: {node-pool: small}
            taints: [{key: gpu, value: "yes"}]
            zones: [a, b]
            gpus: [{product: NVIDIA-H200, count: 4, memoryMiB: 71680}]
          - {name: plain, cpu: "8", memory: 16Gi, resources: {example.com/x: "3"}}
        """
    )
    nodes = topology.load(path).nodes()
    assert [node.name for node in nodes] == ["small-1", "small-2", "small-3", "plain-1"]
    assert [node.labels.get(names.ZONE_LABEL) for node in nodes] == ["a", "b", "a", None]
    assert nodes[0].taints == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert json.loads(nodes[0].annotations[names.EMULATED_GPUS])[0]["memoryMiB"] == 71680
    assert nodes[3].capacity["example.com/x"] == "3"
    assert names.MIG_CAPABLE_LABEL not in nodes[3].labels


def assert_refused(path: Path, text: str, field: str) -> None:
    """With a message that names the file and the field."""
    path.write_text(text)
    with pytest.raises(topology.TopologyError) as error:
        topology.load(path)
    assert field in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("pools: [{name: a, nodes: many}]", "pools[0].nodes"),
        ("pools: [{name: a, gpu: []}]", "gpu"),
        ("pools: [{name: a, gpus: [{count: -1}]}]", "pools[0].gpus[0].count: -1 is negative"),
        ("pools: [{name: A_b}]", "pools[0].name: 'A_b' is not a valid node name"),
        ("pools: [{name: a}, {name: a}]", "used twice"),
        ("pools: []", "pools: [] has no pool"),
        ("{pools: [{name: a}], sharing: maybe}", "sharing: Expected `bool`"),
        ("{", "is not YAML"),
        ("[]", "Expected `object`"),
    ],
)
def test_bad_files_are_refused_with_the_field(tmp_path: Path, text: str, field: str) -> None:
    assert_refused(tmp_path / "t.yaml", text, field)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("pools: [{name: a, nodes: 100000000}]", "pools[0].nodes: 100000000 is too large: use at most 10000 nodes"),
        ("pools: [{name: a, light: true, nodes: 10001}]", "pools[0].nodes: 10001 is too large: use at most 10000"),
        ("pools: [{name: a, nodes: 501}]", "501 is too large: use at most 500 nodes that are not light"),
        ("pools: [{name: a, nodes: 300}, {name: b, nodes: 300}]", "pools[1].nodes: 300 is too large: use at most 500"),
        ("pools: [{name: a, gpus: [{count: 1000000000}]}]", "pools[0].gpus[0].count: 1000000000 is too large: use at"),
        ("pools: [{name: a, gpus: [{count: 40}, {count: 40}]}]", "pools[0].gpus[1].count: 40 is too large"),
        ("pools: [&a {name: a}, " + "*a, " * 2_000 + "]", "has more than 1000 YAML aliases"),
        ("# " + "x" * 2_000_000, "has 2000002 characters: a topology has at most 1048576"),
    ],
)
def test_t02_a_topology_that_is_too_large_is_refused_at_once(tmp_path: Path, text: str, field: str) -> None:
    assert_refused(tmp_path / "t.yaml", text, field)


def test_t02_the_number_of_nodes_of_a_command_is_bounded_too() -> None:
    with pytest.raises(topology.TopologyError, match="--nodes: 100000000 is too large: use at most 500"):
        topology.default(100_000_000)


def test_t02_the_gpus_of_kind_files_are_bounded_too(tmp_path: Path) -> None:
    kind = tmp_path / "kind.yaml"
    kind.write_text(
        "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n"
        "  - {role: worker, labels: {run.ai/simulated-gpu-node-pool: big}}\n"
    )
    values = tmp_path / "values.yaml"
    values.write_text("topology: {nodePools: {big: {gpuCount: 1000000000, gpuProduct: NVIDIA-A100-PCIE-40GB}}}\n")
    with pytest.raises(topology.TopologyError, match="1000000000 is too large: use at most 64 GPUs in one node"):
        topology.load(kind, values)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(topology.TopologyError, match="cannot be read: No such file"):
        topology.load(tmp_path / "none.yaml")
