"""Document 003 with every plane in a container on a real kubelet."""

from __future__ import annotations

import pytest

from tests.environments.installed import Installed
from tests.story import document_003
from tests.story.slice_story import NamespacedKubectl

pytestmark = pytest.mark.real


@pytest.mark.timeout(1200)
def test_s06_s10_s11_s12_s14_document_003_holds_word_for_word(real_planes: Installed, namespace: str) -> None:
    document_003.walk(NamespacedKubectl(real_planes, namespace), real_planes.cluster.kubeconfig)
    real_planes.await_ready()
    assert real_planes.left_on_nodes() == []
