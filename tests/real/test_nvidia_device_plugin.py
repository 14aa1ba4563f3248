"""NVIDIA's own device plugin on a managed node: reported as Degraded, no new slices there, until it is removed. Rule
S10."""

from __future__ import annotations

from typing import Any

import pytest

from tests.environments.installed import SWITCHES, Installed
from tests.environments.waiting import until
from tests.real.slice_pods import POLITE, SlicePod

pytestmark = pytest.mark.real


def test_s10_nvidias_device_plugin_on_the_node_stops_new_slices_and_keeps_the_old(
    real_planes: Installed, namespace: str
) -> None:
    running = SlicePod(real_planes, namespace, "running")
    running.await_running()
    claim, slices = running.claim(), real_planes.slices()
    rival = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plugin", "labels": {"name": "nvidia-device-plugin-ds"}},
        "spec": {
            "containers": [{"name": "ctr", "image": "busybox:1.36", "command": ["sh", "-c", POLITE]}],
            "nodeName": real_planes.node.name,
        },
    }
    real_planes.api.create(f"/api/v1/namespaces/{namespace}/pods", rival)
    until(lambda: degraded(real_planes)["reason"] == "ForeignDevicePlugin", "the operator says so", within=60)
    assert f"{namespace}/plugin" in degraded(real_planes)["message"]

    waiting = SlicePod(real_planes, namespace, "waiting")
    until(lambda: "FailedScheduling" in waiting._events(), "an event says why it waits", within=60)
    assert not real_planes.claims(waiting.uid)
    assert real_planes.slices() == slices
    assert running.claim()["status"] == claim["status"]

    real_planes.kubectl("delete", "pod", "-n", namespace, "plugin", "--wait=false")
    waiting.await_running(within=60)
    until(lambda: degraded(real_planes)["status"] == "False", "all is well again", within=60)
    assert waiting.printed_uuid() == waiting.mig_uuid()
    assert running.printed_uuid() == running.mig_uuid()


def degraded(planes: Installed) -> dict[str, Any]:
    entries = planes.api.get(SWITCHES)["status"]["conditions"]
    return next(entry for entry in entries if entry["type"] == "Degraded")
