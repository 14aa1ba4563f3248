"""Answers `/mutate-slices`: which rules apply to which object of an admission review.

Pods and the templates of Jobs (M02) are changed when they are created, and keep these changes when they are
updated. Templates of Deployments, ReplicaSets and StatefulSets are never changed: their controllers would detect a
difference and create new revisions forever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from apportion.admission import admission_review, json_diff, pods
from apportion.admission.admission_review import Question, ReviewAnswer
from apportion.admission.pods import ClusterFacts
from apportion.admission.requests import mapping
from apportion.cluster.log_text import word

log = logging.getLogger(__name__)

ClusterFactsOf = Callable[[str], ClusterFacts]
"""What the rules must know about a namespace."""


def answer(question: Question, facts: ClusterFactsOf) -> ReviewAnswer:
    """Answer `/mutate-slices`. Raises InputError for rejected objects."""
    if question.sub_resource or question.operation not in {"CREATE", "UPDATE"}:
        return admission_review.allowed(question.uid)
    place = _PLACES.get((question.kind.group, question.kind.kind))
    if place is None:
        return admission_review.allowed(question.uid)
    find, root = place
    before, after = question.changeable(), question.changeable()
    if question.operation == "CREATE":
        done = pods.create(find(after), facts(question.namespace), root)
    else:
        done = pods.update(find(after), find(question.old_changeable()), root)
    _log(question, after, done)
    return admission_review.allowed(question.uid, json_diff.difference(before, after))


def _itself(pod: dict[str, Any]) -> dict[str, Any]:
    return pod


def _template(job: dict[str, Any]) -> dict[str, Any]:
    return mapping(mapping(job.get("spec"), "spec").get("template"), "spec.template")


_PLACES: dict[tuple[str, str], tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    ("", "Pod"): (_itself, pods.POD_ROOT),
    ("batch", "Job"): (_template, pods.TEMPLATE_ROOT),
}


def _log(question: Question, after: dict[str, Any], done: list[str]) -> None:
    if done:
        log.info("%s: %s", _named(question, after), "; ".join(done))


def _named(question: Question, obj: dict[str, Any]) -> str:
    """`Pod default/name`; a pod that its controller did not name yet is identified by its generateName."""
    metadata = mapping(obj.get("metadata"), "metadata")
    name = question.name or metadata.get("name") or metadata.get("generateName") or "?"
    return f"{question.kind.kind} {word(f'{question.namespace}/{name}')}"
