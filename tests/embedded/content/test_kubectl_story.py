"""kubectl cannot tell the embedded server from a real one: the same commands, the same words."""

from __future__ import annotations

import shlex

import pytest

from tests.embedded.content import kubectl_story
from tests.grounds.cluster import Cluster
from tests.grounds.control_plane import ControlPlane
from tests.grounds.embedded import Embedded
from tests.grounds.waiting import until


@pytest.mark.real
@pytest.mark.kubectl
def test_the_same_commands_print_the_same(embedded_cluster: Embedded, control_plane: ControlPlane) -> None:
    ours, real = told(embedded_cluster), told(control_plane)
    assert {command: (ours[command], real[command]) for command in real if ours[command] != real[command]} == {}


def told(cluster: Cluster) -> dict[str, str]:
    """Everything that kubectl printed, by number and command."""
    namespace = kubectl_story.NAMESPACE
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    cluster.kubectl("create", "namespace", namespace)
    try:
        until(lambda: cluster.api.exists(account), "the namespace's default account")
        found = {}
        for number, (command, given) in enumerate(kubectl_story.STORY):
            words = command.split() if "{" in command else shlex.split(command)
            printed = cluster.kubectl("-n", namespace, *words, input=given, check=False)
            found[f"{number}: {command}"] = kubectl_story.masked(printed)
        return found
    finally:
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")
