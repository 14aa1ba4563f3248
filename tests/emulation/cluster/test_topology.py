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


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("pools: [{name: a, nodes: many}]", "pools[0].nodes"),
        ("pools: [{name: a, gpu: []}]", "gpu"),
        ("pools: [{name: a, gpus: [{count: -1}]}]", "pools[0].gpus[0].count: -1 is negative"),
        ("pools: [{name: A_b}]", "pools[0].name: 'A_b' is not a valid node name"),
        ("pools: [{name: a}, {name: a}]", "used twice"),
        ("pools: []", "pools: [] has no pool"),
        ("{", "is not YAML"),
        ("[]", "Expected `object`"),
    ],
)
def test_bad_files_are_refused_with_the_field(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(topology.TopologyError) as error:
        topology.load(path)
    assert field in str(error.value)
    assert str(path) in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(topology.TopologyError, match="cannot be read: No such file"):
        topology.load(tmp_path / "none.yaml")
