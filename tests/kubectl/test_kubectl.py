"""The commonly used kubectl commands, in chapters, on the embedded cluster and on a real one.

Each chapter is run on the embedded cluster and again on a real one (those about pods that run on a real node): where
the two print different things, the assertion shows the difference. A real cluster does not print the same every time
(an event more, when one of its controllers reads another's work late), so a chapter that differs is run there once
more: what it never prints, the embedded cluster must not print either.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.environments import binaries, fixtures
from tests.environments.cluster import Cluster
from tests.environments.control_plane import ControlPlane
from tests.environments.embedded import Embedded
from tests.environments.node import RealNode
from tests.kubectl import describing, reading, removing, running, session, writing
from tests.kubectl.session import KubectlSession

pytestmark = pytest.mark.kubectl

Chapter = Callable[[KubectlSession], None]
TELLINGS = 2
OBJECTS: tuple[Chapter, ...] = (
    reading.get_prints_tables_and_formats,
    reading.get_prints_whole_objects,
    reading.get_selects,
    reading.get_watches,
    reading.describe_tells_the_whole_story,
    reading.discovery_and_documentation_answer,
    writing.create_makes_what_its_generators_know,
    writing.apply_on_the_client_side,
    writing.apply_on_the_server_side,
    writing.patch_in_three_ways,
    writing.replace_edit_label_and_annotate,
    writing.refusals_name_the_field,
    describing.small_kinds_are_made_and_described,
    describing.manifests_with_mistakes_are_refused,
    removing.delete_by_name_selector_and_file,
    removing.delete_cascades,
    removing.scale_and_roll_without_nodes,
    removing.nodes_are_objects_too,
)
PODS: tuple[Chapter, ...] = (
    running.logs_are_printed_followed_and_kept,
    running.rollouts_progress,
    running.jobs_run_to_their_end,
    running.pods_and_nodes_are_described,
    running.drain_respects_a_budget,
    running.taints_evict,
)
objects = pytest.mark.parametrize("chapter", OBJECTS, ids=lambda chapter: chapter.__name__)
pods = pytest.mark.parametrize("chapter", PODS, ids=lambda chapter: chapter.__name__)
# Its taint would evict the pods of others on the real node that they share.
on_a_node = pytest.mark.parametrize("chapter", PODS[:-1], ids=lambda chapter: chapter.__name__)


class Told:
    """Transcripts of the embedded cluster, each made once per run."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._told: dict[str, list[str]] = {}

    def transcript(self, chapter: Chapter) -> list[str]:
        if chapter.__name__ not in self._told:
            self._told[chapter.__name__] = tell_all(chapter, self._cluster, self._folder)
        return self._told[chapter.__name__]


@pytest.fixture(scope="session")
def without_nodes(embedded_cluster: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Told:
    fixtures.require(("kubectl",))
    return Told(embedded_cluster, tmp_path_factory.mktemp("kubectl"))


@pytest.fixture(scope="session")
def with_a_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    fixtures.require(("kubectl",))
    folder = tmp_path_factory.mktemp("one-node")
    (folder / "topology.yaml").write_text(yaml.safe_dump({"pools": [{"name": "n", "nodeNames": ["n1"]}]}))
    cluster = Embedded(folder, "--bare", "--topology", str(folder / "topology.yaml"), "--restart-backoff", "1")
    yield Told(cluster, tmp_path_factory.mktemp("kubectl"))
    cluster.close()


@objects
def test_kubectl_works_with_objects(chapter: Chapter, without_nodes: Told) -> None:
    assert without_nodes.transcript(chapter)


@pods
def test_kubectl_works_with_pods_that_run(chapter: Chapter, with_a_node: Told) -> None:
    assert with_a_node.transcript(chapter)


@objects
@pytest.mark.real
def test_kubectl_prints_what_it_prints_on_a_real_control_plane(
    chapter: Chapter, without_nodes: Told, control_plane: ControlPlane, tmp_path: Path
) -> None:
    compare(without_nodes.transcript(chapter), chapter, control_plane, tmp_path)


@on_a_node
@pytest.mark.real
def test_kubectl_prints_what_it_prints_on_a_real_node(
    chapter: Chapter, with_a_node: Told, real_node: RealNode, tmp_path: Path
) -> None:
    compare(with_a_node.transcript(chapter), chapter, real_node.plane, tmp_path)


@pytest.mark.real
def test_kubectl_prints_what_it_prints_on_a_real_node_of_its_own(with_a_node: Told, tmp_path: Path) -> None:
    fixtures.require(binaries.CONTROL_PLANE + binaries.NODE)
    plane = ControlPlane(tmp_path / "plane")
    try:
        node = RealNode(plane)
        compare(with_a_node.transcript(running.taints_evict), running.taints_evict, node.plane, tmp_path)
    finally:
        plane.close()


def tell_all(chapter: Chapter, cluster: Cluster, folder: Path) -> list[str]:
    with session.chapter(cluster, folder / chapter.__name__) as tell:
        chapter(tell)
    return tell.transcript


def compare(embedded: list[str], chapter: Chapter, real: Cluster, folder: Path) -> None:
    """Fails with the first command that printed something else, as a diff from the real cluster to ours."""
    difference = ""
    for telling_number in range(TELLINGS):
        difference = first_difference(embedded, tell_all(chapter, real, folder / str(telling_number)))
        if not difference:
            return
    pytest.fail(difference, pytrace=False)


def first_difference(embedded: list[str], real: list[str]) -> str:
    for ours, theirs in zip(embedded, real, strict=True):
        if ours != theirs:
            diff = difflib.unified_diff(theirs.splitlines(), ours.splitlines(), "real", "embedded", n=99, lineterm="")
            return "\n".join(diff)
    return ""
