"""Document 001 with every plane in a container on a real kubelet, and the pod of document 004.

Nothing is mounted into a container without a device of its own, so nvidia-smi is not there: the containers show their
variables instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.environments.installed import Installed
from tests.real.sharing import sharing_installed
from tests.story import document_001
from tests.story.slice_story import NamespacedKubectl

pytestmark = pytest.mark.real

SHOW = "echo $NVIDIA_VISIBLE_DEVICES $GPU_PORTION"


@pytest.fixture(scope="module")
def with_sharing(real_planes: Installed) -> Iterator[Installed]:
    with sharing_installed(real_planes, gpus=2):
        yield real_planes


@pytest.mark.timeout(900)
def test_g01_g02_g03_g05_g06_g08_document_001_holds(with_sharing: Installed, namespace: str) -> None:
    document_001.walk(NamespacedKubectl(with_sharing, namespace), script=f"{SHOW}; sleep 3600")


@pytest.mark.timeout(600)
def test_q02_g02_the_pod_of_document_004_runs_in_its_queue(with_sharing: Installed) -> None:
    document_001.pod_of_document_004(NamespacedKubectl(with_sharing, "gpu-workload"), script=SHOW)
