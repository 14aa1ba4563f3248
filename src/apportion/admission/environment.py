"""Answers `/mutate-environment`: a container without a GPU selects none, wherever its variables come from (T05).

ConfigMaps and Secrets of `envFrom` can change after admission, and NVIDIA's runtime also reads the variables of the
image. A variable in `env` has precedence over both, so `NVIDIA_VISIBLE_DEVICES=void` is added to containers that
request no GPU. Containers with a GPU are unchanged: their device plugin sets the variable. Containers of a pod with a
share have it already (`shares`), except those that are added to the running pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from apportion.admission import admission_review, json_diff, requests, shares
from apportion.admission.admission_review import Question, ReviewAnswer
from apportion.admission.requests import ManifestContainer, mapping
from apportion.admission.shares import NO_GPU
from apportion.apis import names

EPHEMERAL = "ephemeralcontainers"
NVIDIA_RUNTIME_CLASSES = "nvidia"  # the prefix of their names
_GPU_RESOURCES = (names.NVIDIA_PREFIX, names.SLICE_PREFIX)


def answer(question: Question) -> ReviewAnswer:
    """Answer `/mutate-environment`."""
    if not question.is_pod or question.sub_resource not in {"", EPHEMERAL}:
        return admission_review.allowed(question.uid)
    before, after = question.new(), question.new()
    if question.operation == "CREATE":
        hide(after)
    elif question.operation == "UPDATE":
        repeat(after, question.old())
    return admission_review.allowed(question.uid, json_diff.difference(before, after))


def hide(pod: dict[str, Any]) -> None:
    """Add the variable to all containers of a new pod that request no GPU and whose environment is unknown."""
    spec = _spec(pod)
    unknown = _image_counts(spec)
    for container in requests.containers(spec, "spec"):
        if not _has_gpu(container):
            _add(container, unknown=unknown)


def repeat(pod: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Existing containers keep the variable that was added to them (D05); new ephemeral containers get it."""
    earlier = {container.name: container for container in _all_containers(_spec(old))}
    unknown = _image_counts(_spec(pod)) or bool(shares.named(pod))
    for container in _all_containers(_spec(pod)):
        if container.name not in earlier:
            _add(container, unknown=unknown)
        elif NO_GPU in (earlier[container.name].body.get("env") or []):
            _add(container, unknown=True)


def _add(container: ManifestContainer, *, unknown: bool) -> None:
    variables = container.body.get("env") or []
    named = any(isinstance(each, dict) and each.get("name") == names.VISIBLE_DEVICES for each in variables)
    if not named and (unknown or container.body.get("envFrom")):
        container.body["env"] = [*variables, dict(NO_GPU)]


def _has_gpu(container: ManifestContainer) -> bool:
    return any(container.amount(name) for name in container.names() if name.startswith(_GPU_RESOURCES))


def _image_counts(spec: Mapping[str, Any]) -> bool:
    """Whether NVIDIA's runtime reads the variables of the image."""
    return str(spec.get("runtimeClassName") or "").startswith(NVIDIA_RUNTIME_CLASSES)


def _all_containers(spec: dict[str, Any]) -> Iterator[ManifestContainer]:
    yield from requests.containers(spec, "spec")
    for index, body in enumerate(spec.get("ephemeralContainers") or []):
        field = f"spec.ephemeralContainers[{index}]"
        yield ManifestContainer(field, mapping(body, field))


def _spec(pod: Mapping[str, Any]) -> dict[str, Any]:
    return mapping(pod.get("spec"), "spec")
