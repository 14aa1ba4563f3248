"""The observer of the storm finds what it is there for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.environments.embedded import Embedded
from tests.environments.installed import MANIFESTS
from tests.environments.waiting import until
from tests.storm.observer import CLAIMS, Observer

Json = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Embedded]:
    """A node and the custom resources, without planes."""
    started = Embedded(tmp_path, "--bare", "--nodes", "1")
    try:
        for definition in yaml.safe_load_all((MANIFESTS / "01-crds.yaml").read_text()):
            started.api.create(CRDS, definition)
        started.api.create("/api/v1/namespaces", {"metadata": {"name": "das-operator"}})
        until(lambda: started.api.exists(CLAIMS), "claims are served")
        yield started
    finally:
        started.close()


@pytest.fixture
def observer(cluster: Embedded, tmp_path: Path) -> Observer:
    return Observer(cluster.kubeconfig, tmp_path / "nodes")


def test_s06_two_overlapping_claims_in_use_are_found(cluster: Embedded, observer: Observer) -> None:
    with observer.observing():
        _claim(cluster, "one", start=0, size=4)
        _claim(cluster, "two", start=4, size=4)
        until(lambda: observer.counts["claim changes"] >= 4, "the observer has seen both")
        assert not observer.violations
        _claim(cluster, "three", start=2, size=4)
        until(lambda: observer.violations, "the overlap is found")
    assert "three" in observer.violations[0]


def test_s07_two_containers_with_one_device_are_found(cluster: Embedded, observer: Observer) -> None:
    with observer.observing():
        _pod(cluster, "one")
        until(lambda: observer.violations, "a device that does not exist is found")
        assert "does not exist on any node" in observer.violations[0]
        _pod(cluster, "two")
        until(lambda: any("hold the device MIG-1" in text for text in observer.violations), "the second one is found")


def _claim(cluster: Embedded, name: str, *, start: int, size: int) -> None:
    spec = {
        "profile": "3g.20gb",
        "gpuUUID": "GPU-1",
        "nodename": "node-1",
        "migPlacement": {"start": start, "size": size},
        "podRef": {"kind": "Pod", "namespace": "default", "name": name, "uid": name},
    }
    body = {"apiVersion": "inference.redhat.com/v1alpha1", "kind": "AllocationClaim", "metadata": {"name": name}}
    cluster.api.create(CLAIMS, body | {"spec": spec})
    cluster.api.merge(f"{CLAIMS}/{name}/status", {"status": {"state": "inUse"}})


def _pod(cluster: Embedded, name: str) -> None:
    container = {
        "name": "busy",
        "image": "busybox:1.36",
        "command": ["sh", "-c", "env | grep ^NVIDIA_VISIBLE_DEVICES=; sleep 1000"],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "MIG-1"}],
        "resources": {},
    }
    metadata = {"name": name, "labels": {"storm": "yes"}}
    body = {"metadata": metadata, "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}
    cluster.api.create("/api/v1/namespaces/default/pods", body)
