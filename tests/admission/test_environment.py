"""T05: which containers get `NVIDIA_VISIBLE_DEVICES=void`, and that it stays."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from apportion.admission import admission_review, environment
from apportion.admission.shares import Sharing
from tests.admission.gpu_doors import VISIBLE, variable
from tests.admission.reviews import applied, review
from tests.admission.samples import created
from tests.builders.pods import container, pod

Json = dict[str, Any]

SOURCE = [{"configMapRef": {"name": "devices"}}]
VOID = variable(VISIBLE, "void")


def reviewed(body: Json, **request: Any) -> Json:
    question = admission_review.parse(msgspec.json.encode(review(body, **request)))
    return applied(body, msgspec.json.decode(environment.answer(question).body)["response"])


def env(body: Json, key: str = "containers") -> list[list[Json]]:
    return [each.get("env", []) for each in body["spec"][key]]


def test_t05_containers_without_a_gpu_get_it_if_their_variables_come_from_elsewhere() -> None:
    body = pod(
        "story",
        containers=[
            container("a", envFrom=SOURCE),
            container("b", envFrom=SOURCE, env=[variable("A", "1")]),
            container("c", envFrom=SOURCE, env=[variable(VISIBLE, "none")]),
            container("d", envFrom=SOURCE, limits={"nvidia.com/gpu": "0"}),
            container("e", envFrom=SOURCE, limits={"nvidia.com/gpu": "1"}),
            container("f", envFrom=SOURCE, requests={"mig.das.com/1g.5gb": "1"}),
            container("g", env=[variable("A", "1")]),
        ],
        init=[container("i", envFrom=SOURCE)],
    )
    after = reviewed(copy.deepcopy(body))
    kept = [variable("A", "1")]
    assert env(after) == [[VOID], [*kept, VOID], [variable(VISIBLE, "none")], [VOID], [], [], kept]
    assert env(after, "initContainers") == [[VOID]]
    assert reviewed(copy.deepcopy(after)) == after


def test_t05_beside_a_gpu_nvidias_runtime_gives_the_image_of_a_sidecar_nothing() -> None:
    gpu, sidecar = container(limits={"nvidia.com/mig-1g.5gb": "1"}), container("sidecar")
    after = reviewed(pod("story", containers=[gpu, sidecar], runtimeClassName="nvidia-cdi"))
    assert env(after) == [[], [VOID]]
    assert env(reviewed(pod("story", containers=[gpu, sidecar], runtimeClassName="kata"))) == [[], []]


@pytest.mark.parametrize("named", [None, "b"])
def test_t05_the_container_with_a_share_keeps_its_reference(named: str | None) -> None:
    annotations = {"gpu-fraction": "0.5"} | ({"gpu-fraction-container-name": named} if named else {})
    both = [container("a", envFrom=SOURCE), container("b", envFrom=SOURCE)]
    body = pod("story", containers=both, annotations=annotations, schedulerName="kai-scheduler")
    shared = created(body, sharing=Sharing(on=True))
    assert reviewed(copy.deepcopy(shared)) == shared


def test_d05_an_update_repeats_what_was_added_and_adds_nothing_else() -> None:
    manifest = pod("story", containers=[container("a", envFrom=SOURCE)])
    live = reviewed(copy.deepcopy(manifest))
    assert reviewed(copy.deepcopy(manifest), old=live, operation="UPDATE") == live
    outage = copy.deepcopy(manifest)
    assert reviewed(copy.deepcopy(outage), old=outage, operation="UPDATE") == outage


def test_t05_new_ephemeral_containers_get_it_too() -> None:
    before = pod("story", containers=[container()], ephemeralContainers=[{"name": "old", "envFrom": SOURCE}])
    after = copy.deepcopy(before)
    after["spec"]["ephemeralContainers"] += [{"name": "new", "envFrom": SOURCE}, {"name": "plain"}]
    done = reviewed(after, old=before, operation="UPDATE", subResource="ephemeralcontainers")
    assert env(done, "ephemeralContainers") == [[], [VOID], []]


@pytest.mark.parametrize(
    "more",
    [{"runtimeClassName": "nvidia"}, {"annotations": {"gpu-fraction": "0.5"}, "schedulerName": "kai-scheduler"}],
    ids=["runtime class", "share"],
)
def test_t05_beside_a_gpu_the_image_of_an_ephemeral_container_selects_nothing(more: Json) -> None:
    before = pod("story", containers=[container()], **more)
    after = copy.deepcopy(before)
    after["spec"]["ephemeralContainers"] = [{"name": "plain"}]
    done = reviewed(after, old=before, operation="UPDATE", subResource="ephemeralcontainers")
    assert env(done, "ephemeralContainers") == [[VOID]]
    assert env(done) == [[]]


def test_t05_other_objects_and_subresources_are_unchanged() -> None:
    body = pod("story", containers=[container("a", envFrom=SOURCE)])
    assert reviewed(body | {"kind": "PodTemplate"}) == body | {"kind": "PodTemplate"}
    assert reviewed(body, subResource="binding") == body
    assert reviewed(body, operation="DELETE") == body
