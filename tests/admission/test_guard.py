"""Slices and shares that no scheduler would place are refused, and those without effect warned about."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apportion.admission import admission_review, guard
from apportion.admission.admission_review import Question
from apportion.apis.errors import RequestError
from tests.admission.reviews import review as asked
from tests.builders.pods import container, pod


def question(obj: dict[str, Any], **request: Any) -> Question:
    return admission_review.parse(msgspec.json.encode(asked(obj, **request)))


def judged(obj: dict[str, Any], **request: Any) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(guard.judge(question(obj, **request)).body)["response"]
    return answer


def test_d03_slices_need_a_scheduler_of_ours_and_no_preset_node() -> None:
    slices = {"mig.das.com/1g.5gb": "1"}
    for good in ("das-scheduler", "kai-scheduler"):
        assert judged(pod("story", containers=[container(limits=slices)], schedulerName=good))["allowed"]
    with pytest.raises(RequestError, match="this scheduler does not support MIG slices"):
        judged(pod("story", containers=[container(limits=slices)], schedulerName="theirs"))
    with pytest.raises(RequestError, match="nodeName"):
        judged(pod("story", containers=[container(limits=slices)], schedulerName="das-scheduler", nodeName="n1"))


@pytest.mark.parametrize("annotation", ["gpu-fraction-num-devices", "gpu-fraction-container-name"])
def test_d03_settings_of_a_share_under_another_scheduler_are_warned_about(annotation: str) -> None:
    answer = judged(pod("story", containers=[container()], annotations={annotation: "1"}, schedulerName="theirs"))
    assert answer["warnings"] == [
        f"annotation {annotation} has no effect with scheduler theirs; set schedulerName: kai-scheduler"
    ]


@pytest.mark.parametrize("annotation", ["gpu-fraction", "gpu-memory"])
def test_d03_a_share_under_another_scheduler_is_warned_about(annotation: str) -> None:
    answer = judged(pod("story", containers=[container()], annotations={annotation: "0.5"}))
    assert answer["allowed"]
    assert answer["warnings"] == [
        f"annotation {annotation} has no effect with scheduler default-scheduler; set schedulerName: kai-scheduler"
    ]
    ours = pod("story", containers=[container()], annotations={annotation: "0.5"}, schedulerName="kai-scheduler")
    assert "warnings" not in judged(ours)
    with pytest.raises(RequestError, match="nodeName"):
        judged(ours | {"spec": ours["spec"] | {"nodeName": "n1"}})


@pytest.mark.parametrize(
    ("annotations", "warned"),
    [
        (
            {"gpu-fraction-container-name": "main"},
            ["gpu-fraction-container-name has no effect without gpu-fraction or"],
        ),
        ({"gpu-fraction": "0.5", "mps": "true"}, ["mps has no effect"]),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"}, []),
        ({"mps": "true"}, ["mps has no effect"]),
        ({"mps": "false"}, []),
    ],
)
def test_d03_annotations_without_effect_are_warned_about(annotations: dict[str, str], warned: list[str]) -> None:
    body = pod("story", containers=[container()], annotations=annotations, schedulerName="kai-scheduler")
    found = judged(body).get("warnings", [])
    assert len(found) == len(warned)
    assert all(text.startswith(f"annotation {begins}") for text, begins in zip(found, warned, strict=True))


def test_d02_other_objects_and_operations_pass() -> None:
    foreign = pod("story", containers=[container(limits={"mig.das.com/1g.5gb": "1"})], schedulerName="theirs")
    assert judged(foreign, operation="DELETE")["allowed"]
    assert judged(foreign, old=foreign, operation="UPDATE")["allowed"]
    assert judged(foreign | {"kind": "PodTemplate"})["allowed"]


def test_s03_slices_beside_a_whole_gpu_are_refused_also_where_nobody_rewrites() -> None:
    asks = {"mig.das.com/1g.5gb": "1", "nvidia.com/gpu": "1"}
    with pytest.raises(RequestError, match="use two containers"):
        judged(pod("story", containers=[container(limits=asks)], schedulerName="das-scheduler"))
