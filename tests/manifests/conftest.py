"""One cluster of each kind with our manifests, for the tests of what the components' tokens allow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.environments import binaries
from tests.environments.api import Api
from tests.environments.control_plane import ControlPlane
from tests.environments.embedded import Embedded
from tests.environments.fixtures import require
from tests.manifests.installed_tokens import InstalledTokens

SCHEDULERS = (("das-operator", "das-scheduler"), ("kai-scheduler", "kai-scheduler"))


@pytest.fixture(scope="session")
def embedded_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledTokens]:
    if binaries.locate("kubectl") is None:
        pytest.skip("kubectl missing: run `make real`, or put one on the PATH")
    cluster = Embedded(tmp_path_factory.mktemp("tokens"))
    try:
        yield InstalledTokens(cluster, tmp_path_factory.mktemp("kubeconfigs"))
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def real_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledTokens]:
    require(binaries.CONTROL_PLANE)
    plane = ControlPlane(tmp_path_factory.mktemp("tokens"), controllers=False, without_admission=("ServiceAccount",))
    try:
        yield InstalledTokens(plane, tmp_path_factory.mktemp("kubeconfigs"))
    finally:
        plane.close()


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def tokens(request: pytest.FixtureRequest) -> InstalledTokens:
    found: InstalledTokens = request.getfixturevalue(f"{request.param}_tokens")
    return found


@pytest.fixture(params=SCHEDULERS, ids=lambda account: account[1])
def scheduler(request: pytest.FixtureRequest, tokens: InstalledTokens) -> Api:
    """Both accounts of the scheduler program have the same rights."""
    namespace, account = request.param
    return tokens.token(account, namespace=namespace)
