"""Single planes on clusters of their own, each under its own service account and shipped roles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from apportion import manifests
from apportion.apis import names
from apportion.cluster import service_account
from tests.environments import binaries
from tests.environments.cluster import Cluster
from tests.environments.control_plane import ControlPlane
from tests.environments.embedded import Embedded
from tests.environments.fixtures import require
from tests.environments.sandbox_init import SERVICE_ADDRESS
from tests.environments.waiting import until


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def separate_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for a module that installs and removes manifests itself; other tests share theirs."""
    cluster: ControlPlane | Embedded
    if request.param == "real":
        require(binaries.CONTROL_PLANE)
        cluster = ControlPlane(tmp_path_factory.mktemp("separate"))
    else:
        if binaries.locate("kubectl") is None:
            pytest.skip("kubectl missing: run `make real`, or put one on the PATH")
        cluster = Embedded(tmp_path_factory.mktemp("separate"), "--bare", "--nodes", "1")
    yield cluster
    cluster.close()


@contextmanager
def plane(cluster: Cluster, name: str, arguments: list[str], folder: Path) -> Iterator[None]:
    """One plane until the block ends: from its manifest, or as a process where no node could run its pods."""
    if isinstance(cluster, ControlPlane):
        with running(cluster, name, arguments, folder):
            yield
        return
    deployment = next(
        entry for entry in manifests.load() if entry["kind"] == "Deployment" and entry["metadata"]["name"] == name
    )
    cluster.kubectl("apply", "-f", "-", input=json.dumps(deployment))
    cluster.kubectl("rollout", "status", f"deployment/{name}", "-n", names.DAS_NAMESPACE, "--timeout=60s")
    try:
        yield
    finally:
        log = cluster.kubectl("logs", "-n", names.DAS_NAMESPACE, f"deployment/{name}")
        remove_workloads(cluster)
    assert "forbidden" not in log.lower()


def remove_workloads(cluster: Cluster) -> None:
    """Stop every plane; the rest of what is installed stays."""
    cluster.kubectl("delete", "deployments,daemonsets", "--all", "-n", names.DAS_NAMESPACE)
    pods = f"/api/v1/namespaces/{names.DAS_NAMESPACE}/pods"
    until(lambda: not cluster.api.items(pods), "the planes' pods are gone", within=60)


def refusals(cluster: Cluster) -> list[str]:
    """Requests that the shipped roles and policies did not cover."""
    return cluster.forbidden() if isinstance(cluster, ControlPlane | Embedded) else []


@contextmanager
def running(cluster: ControlPlane, account: str, arguments: list[str], folder: Path) -> Iterator[Path]:
    """`apportion <arguments>` until the block ends; gives its log. It must end in order when asked to."""
    secrets = folder / account
    secrets.mkdir()
    (secrets / "token").write_text(cluster.kubectl("create", "token", account, "-n", names.DAS_NAMESPACE).strip())
    (secrets / "namespace").write_text(names.DAS_NAMESPACE)
    (secrets / "ca.crt").write_bytes(cluster.credentials.ca.read_bytes())
    environment = os.environ | {
        service_account.DIRECTORY_ENV: str(secrets),
        "KUBERNETES_SERVICE_HOST": SERVICE_ADDRESS,
        "KUBERNETES_SERVICE_PORT": "443",
    }
    log = folder / f"{account}.log"
    with log.open("wb") as output:
        command = [*cluster.enter, sys.executable, "-m", "apportion", *arguments]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield log
    finally:
        process.terminate()
        code = process.wait(timeout=20)
    assert code == 0, log.read_text()
