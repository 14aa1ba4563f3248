"""Rejects pods with slices or shares that would never get them, and warns of shares without effect (D03, S03).

Such pods must be placed by a scheduler that supports them, not by a preset node. What a pod may not contain at all is
in the shipped policies (`manifests/14-guard-policies.yaml`), which the API server evaluates without the webhook.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apportion.admission import admission_review, requests, shares, slices
from apportion.admission.admission_review import Question, ReviewAnswer
from apportion.apis import names

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
    shares.refuse_preset_node(pod)


def warnings(pod: Mapping[str, Any]) -> list[str]:
    """Warnings for annotations that have no effect (D03)."""
    scheduler = _spec(pod).get("schedulerName") or names.DEFAULT_SCHEDULER
    annotations = requests.mapping(_metadata(pod).get("annotations"), "metadata.annotations")
    if scheduler != names.KAI_SCHEDULER:
        fix = f"has no effect with scheduler {scheduler}; set schedulerName: {names.KAI_SCHEDULER}"
        return [f"annotation {name} {fix}" for name in shares.WRITTEN if name in annotations]
    found = []
    if not shares.named(pod) and names.GPU_FRACTION_CONTAINER in annotations:
        fix = f"has no effect without {' or '.join(shares.SHARES)}"
        found.append(f"annotation {names.GPU_FRACTION_CONTAINER} {fix}")
    if annotations.get(names.MPS) == "true":
        found.append(f"annotation {names.MPS} has no effect")
    return found


def _metadata(pod: Mapping[str, Any]) -> dict[str, Any]:
    return requests.mapping(pod.get("metadata"), "metadata")


def _spec(pod: Mapping[str, Any]) -> dict[str, Any]:
    return requests.mapping(pod.get("spec"), _ROOT)
