"""The fixtures that tests ask for by name.

`control_plane`  a real control plane, once per run
`real_api`       a real API server without controllers, once per run
`real_node`      a real node on a control plane of its own (`real_node.plane`), once per run
`real_planes`    our planes on that node, from the shipped manifests, once per run
`any_cluster`    the test runs twice: on the embedded cluster and on the real control plane
`namespace`      a fresh namespace in the test's cluster, and an audit of what the test left elsewhere

Where a real cluster cannot run, its tests are skipped with one line that says what to do;
`APPORTION_REQUIRE_REAL=1` makes that a failure.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.environments import audit, binaries, images
from tests.environments.cluster import Cluster
from tests.environments.control_plane import ControlPlane
from tests.environments.embedded import Embedded
from tests.environments.installed import Installed
from tests.environments.node import RealNode

_took: dict[str, float] = {}
_inventories: dict[Cluster, set[str]] = {}
"""What was in a cluster after the last test, as long as only audited tests and their own fixtures have run since."""


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    require(binaries.CONTROL_PLANE)
    with _timed("control plane"):
        plane = ControlPlane(tmp_path_factory.mktemp("real"))
    yield plane
    plane.close()


@pytest.fixture(scope="session")
def real_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Nodes and pods are whatever a test says they are."""
    with api_server(tmp_path_factory) as plane:
        yield plane


@pytest.fixture(scope="session")
def real_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    # Not on `control_plane`: there pods of the contract tests would begin to run once a node has joined.
    require(binaries.CONTROL_PLANE + binaries.NODE)
    with _timed("control plane of the node"):
        plane = ControlPlane(tmp_path_factory.mktemp("node"))
    try:
        with _timed("node"):
            node = RealNode(plane, labels={"nvidia.com/mig.capable": "true"})
        yield node
    finally:
        plane.close()


@pytest.fixture(scope="session")
def real_planes(real_node: RealNode) -> Iterator[Installed]:
    with _timed("image"):
        images.apportion()
    with _timed("planes"):
        planes = Installed(real_node)
    yield planes
    # R01, over everything that the tests made the planes do.
    forbidden = real_node.plane.forbidden()
    if forbidden:
        pytest.fail(f"the shipped roles are not enough: {'; '.join(forbidden)}", pytrace=False)


@pytest.fixture(scope="session")
def embedded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with _timed("embedded cluster"):
        cluster = Embedded(tmp_path_factory.mktemp("embedded"))
    yield cluster
    cluster.close()


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def any_cluster(request: pytest.FixtureRequest) -> Cluster:
    # The clusters themselves are session fixtures without parameters: were this one of session scope, a random
    # order of tests would start and stop clusters all the time.
    name = {"embedded": "embedded_cluster", "real": "control_plane"}[request.param]
    cluster: Cluster = request.getfixturevalue(name)
    return cluster


@contextmanager
def api_server(folders: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Without controllers and scheduler."""
    require(binaries.CONTROL_PLANE)
    with _timed("API server"):
        folder = folders.mktemp("api")
        plane = ControlPlane(folder, controllers=False, without_admission=("ServiceAccount", "TaintNodesByCondition"))
    yield plane
    plane.close()


@pytest.fixture(autouse=True)
def _kubectl_where_marked(request: pytest.FixtureRequest) -> None:
    """A test marked `kubectl` is skipped, or fails where the real tools are required, if there is none."""
    if request.node.get_closest_marker("kubectl") is not None:
        require(("kubectl",))


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[str]:
    cluster = _cluster_of(request)
    name = f"test-{secrets.token_hex(4)}"
    cluster.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    before = _inventories.get(cluster) or audit.inventory(cluster.api, leave_out=name)
    yield name
    cluster.api.delete(f"/api/v1/namespaces/{name}")
    left, after = audit.left_behind(cluster.api, before, namespace=name)
    # What is there after one test was there before the next, so most tests take one inventory instead of two.
    _inventories[cluster] = after - set(left)
    for path in left:
        cluster.api.delete(path)
    if left:
        pytest.fail(f"the test left behind: {', '.join(left)}", pytrace=False)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "namespace" not in getattr(item, "fixturenames", ()):
        _inventories.clear()


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
    if fixturedef.scope != "function":
        _inventories.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["set_up"] = _took


def pytest_testnodedown(node: Any) -> None:
    for step, seconds in getattr(node, "workeroutput", {}).get("set_up", {}).items():
        _took[step] = max(seconds, _took.get(step, 0.0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _took:
        steps = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in _took.items())
        terminalreporter.write_line(f"cluster set-up: {steps}; {sum(_took.values()):.1f} s in all")


@contextmanager
def _timed(step: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    _took[step] = time.monotonic() - began


def _cluster_of(request: pytest.FixtureRequest) -> Cluster:
    if "real_node" in request.fixturenames:
        node: RealNode = request.getfixturevalue("real_node")
        return node.plane
    wanted = ("any_cluster", "control_plane", "embedded_cluster")
    name = next((name for name in wanted if name in request.fixturenames), "control_plane")
    cluster: Cluster = request.getfixturevalue(name)
    return cluster


def require(names: tuple[str, ...]) -> None:
    obstacle = binaries.obstacles(names)
    if obstacle is None:
        return
    if os.environ.get("APPORTION_REQUIRE_REAL") == "1":
        pytest.fail(f"real cluster required, but {obstacle}", pytrace=False)
    pytest.skip(f"no real cluster here: {obstacle}")
