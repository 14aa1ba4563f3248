"""Rejects pods that select GPUs which are not allocated to them (D02, D03, G03).

Container runtimes follow `NVIDIA_VISIBLE_DEVICES` and CDI annotations of any origin, so users may set only values
that select no GPU. Pods with slices must be placed by a scheduler that supports them, not by a preset node. For an
update only what it adds is validated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from apportion.admission import admission_review, requests, slices
from apportion.admission.admission_review import Question, ReviewAnswer
from apportion.admission.requests import ManifestContainer
from apportion.apis import names
from apportion.apis.errors import RequestError
from apportion.apis.installation import Installation

OTHER_SYSTEM_NAMESPACES = (names.GPU_OPERATOR_NAMESPACE, names.KUBE_SYSTEM_NAMESPACE)
HARMLESS = ("void", "none")
EPHEMERAL = "ephemeralcontainers"
_ROOT = "spec"


def system_namespaces(installation: Installation) -> tuple[str, ...]:
    """Namespaces whose pods may select GPUs directly, unless an administrator lists others."""
    return (*installation.namespaces, *OTHER_SYSTEM_NAMESPACES)


def judge(question: Question, exempt: Collection[str]) -> ReviewAnswer:
    """Answer `/validate`. Raises InputError for rejected pods."""
    if (question.kind.group, question.kind.kind) != ("", "Pod") or question.namespace in exempt:
        return admission_review.allowed(question.uid)
    if question.operation == "CREATE" and not question.sub_resource:
        pod = question.new()
        check(pod, {})
        _check_placing(pod)
        return admission_review.allowed(question.uid, warnings=warnings(pod))
    if question.operation == "UPDATE" and question.sub_resource in {"", EPHEMERAL}:
        check(question.new(), question.old())
    return admission_review.allowed(question.uid)


def check(pod: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    """Reject devices that the pod selects itself, unless the old object selected them too."""
    before = set(_named_devices(old))
    for field, value in _named_devices(pod):
        if (field, value) not in before:
            raise RequestError(
                field,
                value,
                "GPUs are assigned by the scheduler and cannot be selected directly; request a GPU in "
                f"resources.limits and remove this variable, or set it to {' or '.join(HARMLESS)} for no GPU",
                code="DeviceByHand",
            )
    known = set(_cdi_annotations(old))
    for field, value in _cdi_annotations(pod):
        if (field, value) not in known:
            raise RequestError(
                field,
                value,
                "devices are injected for the GPU that is assigned to the pod, not by annotation; request a GPU in "
                "resources.limits and remove the annotation",
                code="DeviceByHand",
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


def _check_placing(pod: Mapping[str, Any]) -> None:
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


def _named_devices(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for container in _all_containers(_spec(pod)):
        listed = container.body.get("env") or []
        if not isinstance(listed, list):
            raise RequestError(f"{container.field}.env", listed, "must be a list of names and values")
        for variable in listed:
            if not isinstance(variable, dict) or variable.get("name") != names.VISIBLE_DEVICES:
                continue
            value = str(variable.get("value") or "") if "valueFrom" not in variable else "(valueFrom)"
            if value not in HARMLESS:
                yield f"{container.field}.env[{names.VISIBLE_DEVICES}]", value


def _all_containers(spec: dict[str, Any]) -> Iterator[ManifestContainer]:
    yield from requests.containers(spec, _ROOT)
    listed = spec.get("ephemeralContainers") or []
    field = f"{_ROOT}.ephemeralContainers"
    if not isinstance(listed, list):
        raise RequestError(field, listed, "must be a list of containers")
    for index, body in enumerate(listed):
        yield ManifestContainer(f"{field}[{index}]", requests.mapping(body, f"{field}[{index}]"))


def _cdi_annotations(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in _annotations(pod).items():
        if name.startswith(names.CDI_ANNOTATION_PREFIX):
            yield f"metadata.annotations[{name}]", str(value)


def _shares(pod: Mapping[str, Any]) -> list[str]:
    return [name for name in (names.GPU_FRACTION, names.GPU_SHARE_MEMORY) if name in _annotations(pod)]


def _annotations(pod: Mapping[str, Any]) -> dict[str, Any]:
    metadata = requests.mapping(pod.get("metadata"), "metadata")
    return requests.mapping(metadata.get("annotations"), "metadata.annotations")


def _spec(pod: Mapping[str, Any]) -> dict[str, Any]:
    return requests.mapping(pod.get("spec"), _ROOT)
