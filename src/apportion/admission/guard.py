"""Rejects pods with slices or shares that would never get them, and warns of shares without effect (D03, S03).

Such pods must be placed by a scheduler that supports them, not by a preset node. What a pod may not contain at all is
in the shipped policies (`manifests/14-guard-policies.yaml`), which the API server evaluates without the webhook.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apportion.admission import admission_review, requests, slices
from apportion.admission.admission_review import Question, ReviewAnswer
from apportion.apis import names
from apportion.apis.errors import RequestError

_ROOT = "spec"


def judge(question: Question) -> ReviewAnswer:
    """Answer `/validate`. Raises InputError for rejected pods."""
    created = question.operation == "CREATE" and not question.sub_resource
    if not question.is_pod or not created:
        return admission_review.allowed(question.uid)
    pod = question.new()
    check(pod)
    return admission_review.allowed(question.uid, warnings=warnings(pod))


def check(pod: Mapping[str, Any]) -> None:
    """Reject slices and shares that the scheduler cannot place."""
    spec = _spec(pod)
    asked = [want for container in requests.containers(spec, _ROOT) for want in requests.slices(container)]
    ours = [want for want in asked if want.ours]
    if ours:
        slices.check_alone(ours)
        slices.direct(dict(spec), _ROOT)
    node = spec.get("nodeName")
    if node and spec.get("schedulerName") == names.KAI_SCHEDULER and _shares(pod):
        raise RequestError(
            "spec.nodeName",
            node,
            "a pod with a GPU share must be placed by the scheduler, otherwise it gets no GPU; remove nodeName "
            f"and use nodeSelector {names.HOSTNAME_LABEL} instead",
            code="PresetNode",
        )


def warnings(pod: Mapping[str, Any]) -> list[str]:
    """Warnings for shares that have no effect (D03)."""
    scheduler = _spec(pod).get("schedulerName") or names.DEFAULT_SCHEDULER
    if scheduler == names.KAI_SCHEDULER:
        return []
    return [
        f"annotation {name} has no effect with scheduler {scheduler}; set schedulerName: {names.KAI_SCHEDULER}"
        for name in _shares(pod)
    ]


def _shares(pod: Mapping[str, Any]) -> list[str]:
    metadata = requests.mapping(pod.get("metadata"), "metadata")
    annotations = requests.mapping(metadata.get("annotations"), "metadata.annotations")
    return [name for name in (names.GPU_FRACTION, names.GPU_SHARE_MEMORY) if name in annotations]


def _spec(pod: Mapping[str, Any]) -> dict[str, Any]:
    return requests.mapping(pod.get("spec"), _ROOT)
