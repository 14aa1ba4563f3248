"""Document 001 with every plane in a container on a real kubelet, and the pod of document 004.

The images of the examples are busybox under their names. Nothing is mounted into a container without a device of its
own, so nvidia-smi is not there: the containers show their variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.environments.installed import Installed
from tests.real.sharing import sharing_installed
from tests.story import document_001
from tests.story.slice_story import NamespacedKubectl
from tests.story.terminal import Terminal

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def with_sharing(real_planes: Installed) -> Iterator[Installed]:
    with sharing_installed(real_planes, gpus=2):
        yield real_planes


@pytest.mark.timeout(900)
def test_g01_g02_g03_g05_g06_g08_document_001_holds(with_sharing: Installed, namespace: str, tmp_path: Path) -> None:
    kubeconfig = with_sharing.cluster.kubeconfig
    terminal = Terminal(document_001.EXAMPLES, tmp_path / "home", kubeconfig=kubeconfig, namespace=namespace)
    document_001.walk(NamespacedKubectl(with_sharing, namespace), terminal, memory_portion="0.041")


@pytest.mark.timeout(600)
def test_q02_g02_the_pod_of_document_004_runs_in_its_queue(with_sharing: Installed, tmp_path: Path) -> None:
    terminal = Terminal(document_001.EXAMPLES, tmp_path / "home", kubeconfig=with_sharing.cluster.kubeconfig)
    tell = NamespacedKubectl(with_sharing, "gpu-workload")
    runs = partial(document_001.sample_runs_until_its_deadline, portion="0.041", charge="41m")
    document_001.pod_of_document_004(tell, terminal, runs)
