"""Document 001 on the embedded cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.environments import binaries
from tests.story import console_blocks, document_001
from tests.story.document_004_snippets import GPU_POD
from tests.story.serving_cluster import ServingCluster
from tests.story.slice_story import NamespacedKubectl
from tests.story.terminal import Terminal


@pytest.fixture(scope="module")
def sharing_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    cluster = ServingCluster(tmp_path_factory.mktemp("d001"), "--sharing", "--restart-backoff", "0.2")
    yield cluster
    cluster.close()


@pytest.fixture
def terminal(sharing_cluster: ServingCluster, tmp_path: Path) -> Terminal:
    return Terminal(document_001.EXAMPLES, tmp_path / "home", kubeconfig=sharing_cluster.kubeconfig)


@pytest.mark.kubectl
@pytest.mark.timeout(600)
def test_g01_g02_g03_g05_g06_g08_document_001_holds(sharing_cluster: ServingCluster, terminal: Terminal) -> None:
    document_001.walk(NamespacedKubectl(sharing_cluster, "default"), terminal, memory_portion="0.049")


def test_q02_g02_the_example_is_the_pod_of_document_004() -> None:
    assert (document_001.EXAMPLES / "gpu-pod.yaml").read_text().endswith(f"\n{GPU_POD}")


@pytest.mark.kubectl
@pytest.mark.timeout(300)
def test_q02_g02_the_pod_of_document_004_runs_in_its_queue(sharing_cluster: ServingCluster, terminal: Terminal) -> None:
    tell = NamespacedKubectl(sharing_cluster, "gpu-workload")
    document_001.pod_of_document_004(tell, terminal, document_001.sample_completes)


@pytest.mark.kubectl
@pytest.mark.timeout(300)
def test_g08_the_commands_of_the_example_print_what_its_readme_shows(tmp_path: Path) -> None:
    terminal = Terminal(binaries.ROOT, tmp_path / "home")
    session = console_blocks.Session(terminal)
    steps = list(console_blocks.read(document_001.EXAMPLES / "README.md"))
    assert steps[-1].command == "apportion down"
    printed = ""
    try:
        for step in steps:
            printed += session.run(filled(step, printed))
    finally:
        terminal.run("apportion down")


def filled(step: console_blocks.Step, printed: str) -> console_blocks.Step:
    """What the README leaves to its reader is taken from what was printed last."""
    command = step.command
    if command.startswith("export KUBECONFIG=..."):
        command = re.findall(r"export KUBECONFIG=\S+", printed)[-1]
    if "<reservation-pod-name>" in command:
        command = command.replace("<reservation-pod-name>", re.findall(r"\bgpu-reservation-\S+", printed)[-1])
    return replace(step, command=command)
