"""The document's two files, and layouts in our own topology file (F02)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.apis import migconfig, names
from apportion.emulation.cluster import topology
from tests.story.document_002_snippets import LARGE_NODE, LARGE_POOL

CONFIG = Path(__file__).parents[3] / "examples" / "mig-fallback" / "config"
KIND, VALUES = CONFIG / "kind-gpu-cluster.yaml", CONFIG / "fake-gpu-values.yaml"


def test_f02_the_documents_two_files_are_read_as_they_are() -> None:
    nodes = topology.load(KIND, VALUES).nodes()
    assert [node.name for node in nodes] == [
        "gpu-sim-cluster-control-plane",
        "gpu-sim-cluster-worker",
        "gpu-sim-cluster-worker2",
    ]
    control_plane, small, medium = nodes
    assert control_plane.taints == [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    assert names.EMULATED_GPUS not in control_plane.annotations
    assert (small.labels["node-pool"], medium.labels["node-pool"]) == ("small", "medium")
    for node in (small, medium):
        assert node.labels["nvidia.com/gpu.product"] == "NVIDIA-H200"
        assert node.labels["nvidia.com/gpu.count"] == "4"
        assert node.labels["nvidia.com/gpu.memory"] == "71680"
        assert node.labels[names.MIG_CAPABLE_LABEL] == "true"


@pytest.mark.parametrize("indented", [False, True])
def test_f02_the_documents_large_snippets_add_a_node_with_four_gpus(tmp_path: Path, *, indented: bool) -> None:
    kind, values = tmp_path / "kind.yaml", tmp_path / "values.yaml"
    pool = "\n".join(f"    {line}" if line else "" for line in LARGE_POOL.splitlines()) if indented else LARGE_POOL
    kind.write_text(KIND.read_text() + LARGE_NODE)
    values.write_text(VALUES.read_text() + pool + "\n")
    large = topology.load(values, kind).nodes()[-1]
    assert large.name == "gpu-sim-cluster-worker3"
    assert large.labels["node-pool"] == "large"
    assert json.loads(large.annotations[names.EMULATED_GPUS]) == [
        {"product": "NVIDIA-H200", "count": 4, "memoryMiB": 71680, "mig": False}
    ]


def test_f02_a_layout_in_a_topology_file_becomes_the_annotation(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(
        """
        pools:
          - name: mixed
            gpus:
              - {product: NVIDIA A100-PCIE-40GB, count: 1}
              - {product: NVIDIA-H200, count: 2, memoryMiB: 71680, layout: {2g.20gb: 3, 1g.10gb: 1}}
              - {product: NVIDIA A30, count: 1, layout: [4g.24gb]}
        """
    )
    (node,) = topology.load(path).nodes()
    config = migconfig.parse(node.annotations[names.MIG_CONFIG])
    assert config.of(0) is None
    selection = config.of(2)
    assert selection is not None
    assert [(entry.profile, entry.position) for entry in selection.layout] == [
        ("2g.20gb", 0),
        ("2g.20gb", 2),
        ("2g.20gb", 4),
        ("1g.10gb", 6),
    ]
    last = config.of(3)
    assert last is not None
    assert last.layout[0].profile == "4g.24gb"


def test_f02_light_nodes_have_their_static_devices_without_an_agent() -> None:
    gpus = [{"product": "NVIDIA-H200", "count": 4, "memoryMiB": 71680, "layout": {"1g.10gb": 7}}]
    (node,) = topology.parse({"pools": [{"name": "far", "light": True, "gpus": gpus}]}).nodes()
    assert node.capacity["nvidia.com/mig-1g.10gb"] == "28"
    assert node.capacity["nvidia.com/gpu"] == "0"


def test_x04_a_gpu_of_a_light_node_is_allocated_once() -> None:
    gpus = [{"product": "NVIDIA A100-PCIE-40GB", "count": 1, "mig": False, "layout": {"1g.5gb": 7}}]
    (node,) = topology.parse({"pools": [{"name": "far", "light": True, "gpus": gpus}]}).nodes()
    assert node.capacity["nvidia.com/mig-1g.5gb"] == "7"
    assert node.capacity["nvidia.com/gpu"] == "0"


def test_names_are_given_to_each_node_or_to_none() -> None:
    with pytest.raises(topology.TopologyError, match="1 names for 2 nodes"):
        topology.parse({"pools": [{"name": "a", "nodes": 2, "nodeNames": ["x"]}]})


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (["9g.90gb"], "has no such profile; it has 1g.10gb, 2g.20gb"),
        ({"2g.20gb": 4}, "do not fit together"),
        (["1g.10gb"] * 8, "do not fit together"),
        ("1g.10gb", "layout"),
        ({"1g.10gb": -1}, "use a number of 0 or more"),
    ],
)
def test_f02_a_layout_that_cannot_be_is_refused_with_the_field(layout: object, said: str) -> None:
    gpus = [{"product": "NVIDIA-H200", "count": 4, "memoryMiB": 71680, "layout": layout}]
    with pytest.raises(topology.TopologyError) as error:
        topology.parse({"pools": [{"name": "a", "gpus": gpus}]})
    assert said in str(error.value)
    assert "pools[0].gpus[0]" in str(error.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("topology: {nodePools: {small: {gpuProduct: Abacus, gpuCount: 1}}}", "'Abacus' is not a known GPU model"),
        ("topology: {nodePools: {small: {gpuProduct: NVIDIA-H200, gpuCount: x}}}", "gpuCount: 'x'"),
        ("topology: {nodePools: {small: 3}}", "nodePools.small: 3"),
        ("[]", "topology.nodePools"),
        ("topology: x", "topology.nodePools"),
        ("topology: {nodePools: [x]}", "topology.nodePools"),
    ],
)
def test_f02_bad_values_are_refused_with_the_field(tmp_path: Path, values: str, said: str) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(values)
    with pytest.raises(topology.TopologyError) as error:
        topology.load(KIND, path)
    assert said in str(error.value)


def test_f02_an_unknown_product_is_refused_before_anything_starts() -> None:
    gpus = [{"product": "NVIDIA B9000", "count": 1}]
    with pytest.raises(topology.TopologyError, match=r"gpus\[0\]\.product: 'NVIDIA B9000' is not a known GPU model"):
        topology.parse({"pools": [{"name": "a", "gpus": gpus}]})


def test_f02_a_model_without_mig_needs_no_word_about_it() -> None:
    pools = [{"name": "a", "gpus": [{"product": "NVIDIA L40S"}]}, {"name": "b", "gpus": [{"product": "Tesla T4"}]}]
    for node in topology.parse({"pools": pools}).nodes():
        assert json.loads(node.annotations[names.EMULATED_GPUS])[0]["mig"] is False
        assert names.MIG_CAPABLE_LABEL not in node.labels
    with pytest.raises(topology.TopologyError, match=r"gpus\[0\]\.mig: 'NVIDIA L40S' does not support MIG"):
        topology.parse({"pools": [{"name": "a", "gpus": [{"product": "NVIDIA L40S", "mig": True}]}]})
