"""Shares of GPUs: what admission adds to pods with a share, and which of them it refuses (G01 to G03, G12, D03).

The container with the share refers to a ConfigMap that the binder creates when the pod has its GPU; all other
containers select none, because images often set NVIDIA_VISIBLE_DEVICES=all:

metadata.annotations[runai/shared-gpu-configmap]: trainer-x7k2m4q-shared-gpu
spec.containers[0].env[NVIDIA_VISIBLE_DEVICES]    from ConfigMap trainer-x7k2m4q-shared-gpu-0   the chosen container
spec.containers[1].env[NVIDIA_VISIBLE_DEVICES]: void                                            every other one

A pod can be reviewed several times, because other webhooks change it in between. What an earlier review added is
recognized by its form and stays as it is.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apportion.admission import requests
from apportion.admission.requests import ManifestContainer
from apportion.apis import names, shared_gpus
from apportion.apis.errors import RequestError
from apportion.apis.meta import ObjectMeta
from apportion.apis.pods import Container, Pod, PodSpec
from apportion.apis.shares import Share, read_share
from apportion.core.catalog import Catalog

SHARES = (names.GPU_FRACTION, names.GPU_SHARE_MEMORY)
WRITTEN = (*SHARES, names.GPU_FRACTION_DEVICES, names.GPU_FRACTION_CONTAINER)
"""Those that users write: pods with one of them are sent to the webhook (D02)."""
ANNOTATIONS = (*WRITTEN, names.SHARED_GPU_CONFIG_MAP)
"""They describe the share of a pod, and cannot be changed once it exists."""
VARIABLES = (names.VISIBLE_DEVICES, names.GPU_PORTION, names.NUMBER_OF_GPUS)
"""Of the container with the share."""
NO_GPU = {"name": names.VISIBLE_DEVICES, "value": "void"}
_NONE = ("void", "none")
_DEVICES = (names.NVIDIA_PREFIX, names.SLICE_PREFIX)
_LONGEST_NAME = 39  # characters of the pod's name, so that names of ConfigMaps have at most 63
_RANDOM_CHARACTERS = 7
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # as in names that the API server generates: no words, no lookalikes
_ADDED = re.compile(rf"-[a-z0-9]{{{_RANDOM_CHARACTERS}}}-{shared_gpus.CONFIG_MAP_SUFFIX}", re.ASCII)
_CHANGED = "the share of a pod cannot be changed; delete the pod first, and create it again"


@dataclass(frozen=True)
class Sharing:
    """What the rules for shares must know about the cluster."""

    on: bool = False
    runtime_class: str | None = None
    """Set on pods with a share that name none; None leaves them alone."""
    models: Catalog = field(default_factory=Catalog.shipped)
    """Every model that is catalogued, and those that nodes report."""


def named(pod: Mapping[str, Any]) -> list[str]:
    """The annotations with which a pod asks for a share, under whatever scheduler."""
    return [name for name in SHARES if name in _annotations(pod)]


def apply(pod: dict[str, Any], sharing: Sharing) -> list[str]:
    """Refuse what can never be right, and add what the container needs; returns the changes for the log."""
    spec, annotations = _spec(pod), _annotations(pod)
    if spec.get("schedulerName") != names.KAI_SCHEDULER or not spec.get("containers"):
        return []
    containers = list(requests.containers(spec, "spec"))
    _refuse_while_off(pod, sharing)
    done = _keep_container(annotations, containers, spec)
    share = read_share(_readable(spec, annotations))
    if share is None:
        return []
    _check(share, pod, containers, sharing)
    prefix = _prefix(pod)
    annotations[names.SHARED_GPU_CONFIG_MAP] = prefix
    config_map = shared_gpus.config_map_name(_readable(spec, annotations), share)
    for container in containers:
        done += _refer(container, prefix, config_map) if container.name == share.container else _hide(container)
    return done + _runtime_class(spec, sharing)


def repeat(pod: dict[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Keep what was added when the pod was created (D05). Another share than it has is refused."""
    before, spec = _spec(old), _spec(pod)
    if before.get("schedulerName") != names.KAI_SCHEDULER or not named(old):
        return []
    prefix = _annotations(old).get(names.SHARED_GPU_CONFIG_MAP)
    if prefix is not None:
        _annotations(pod).setdefault(names.SHARED_GPU_CONFIG_MAP, prefix)
    _refuse_changes(_annotations(pod), _annotations(old))
    earlier = {container.name: container for container in requests.containers(before, "spec")}
    done: list[str] = []
    for container in requests.containers(spec, "spec"):
        if container.name in earlier:
            done += _keep_variables(container, earlier[container.name])
    if before.get("runtimeClassName") and not spec.get("runtimeClassName"):
        spec["runtimeClassName"] = before["runtimeClassName"]
        done.append(f"runtimeClassName kept as {before['runtimeClassName']}")
    return done


def refuse_preset_node(pod: Mapping[str, Any]) -> None:
    """Only the scheduler of shares gives a pod its GPU (D03)."""
    spec = _spec(pod)
    node = spec.get("nodeName")
    if node and spec.get("schedulerName") == names.KAI_SCHEDULER and named(pod):
        raise RequestError(
            "spec.nodeName",
            node,
            "a pod with a GPU share must be placed by the scheduler, otherwise it gets no GPU; remove nodeName "
            f"and use nodeSelector {names.HOSTNAME_LABEL} instead",
            code="PresetNode",
        )


def _refuse_while_off(pod: Mapping[str, Any], sharing: Sharing) -> None:
    for name in named(pod) if not sharing.on else []:
        raise RequestError(
            _field(name),
            _annotations(pod)[name],
            "GPU sharing is switched off in this cluster; request a whole GPU (nvidia.com/gpu) or a MIG slice, or let "
            "an administrator set spec.admission.gpuSharing to true in the Config "
            f"{names.KAI_CONFIG_OBJECT} (kai.scheduler/v1)",
            code="SharingOff",
        )


def _check(share: Share, pod: Mapping[str, Any], containers: Sequence[ManifestContainer], sharing: Sharing) -> None:
    refuse_preset_node(pod)
    for container in containers:
        for resource in container.names():
            if resource.startswith(_DEVICES) and container.amount(resource):
                section = next(each for each in requests.SECTIONS if resource in container.amounts(each))
                raise RequestError(
                    f"{container.field}.resources.{section}[{resource}]",
                    container.amount(resource),
                    f"the pod also has annotation {share.annotation}, and a pod gets either a share of a GPU or whole "
                    "GPUs and MIG slices; remove one of them",
                    code="ShareAndDevice",
                )
    if share.memory_mib is not None:
        sharing.models.require_memory(share.memory_mib, _field(names.GPU_SHARE_MEMORY))


def _keep_container(
    annotations: dict[str, Any], containers: Sequence[ManifestContainer], spec: Mapping[str, Any]
) -> list[str]:
    """Without an annotation the first container has the share. If another webhook inserts one before it, the container
    that was chosen by an earlier review is named."""
    prefix = annotations.get(names.SHARED_GPU_CONFIG_MAP)
    if prefix is None or names.GPU_FRACTION_CONTAINER in annotations:
        return []
    chosen = [each.name for each in containers if any(_is_ours(entry, prefix) for entry in _variables(each))]
    first = requests.mapping(spec["containers"][0], "spec.containers[0]").get("name")
    if len(chosen) != 1 or chosen[0] == first:
        return []
    annotations[names.GPU_FRACTION_CONTAINER] = chosen[0]
    return [f"share kept with container {chosen[0]}"]


def _prefix(pod: Mapping[str, Any]) -> str:
    """How the names of the pod's ConfigMaps begin: new, or as an earlier review of this pod chose it.

    One that was copied from another pod is refused and not replaced, so that the manifest can be applied again."""
    metadata = requests.mapping(pod.get("metadata"), "metadata")
    name = str(metadata.get("name") or metadata.get("generateName") or "pod")[:_LONGEST_NAME].rstrip(".-")
    given = _annotations(pod).get(names.SHARED_GPU_CONFIG_MAP)
    if given is None:
        random = "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_CHARACTERS))
        return f"{name}-{random}-{shared_gpus.CONFIG_MAP_SUFFIX}"
    if isinstance(given, str) and given.startswith(name) and _ADDED.fullmatch(given, len(name)):
        return given
    fix = f"is set at admission; remove the annotation, and the variables {', '.join(VARIABLES)} that refer to it"
    raise RequestError(_field(names.SHARED_GPU_CONFIG_MAP), given, fix, code="CopiedShare")


def _refer(container: ManifestContainer, prefix: str, config_map: str) -> list[str]:
    """The container with the share gets its GPU from the ConfigMap."""
    variables = _variables(container)
    ours = [entry for entry in variables if _is_ours(entry, prefix)]
    others = [entry for entry in variables if not _is_ours(entry, prefix)]
    for entry in others:
        if entry.get("name") in VARIABLES:
            fix = "is set at admission for the container with the share; remove this variable"
            raise RequestError(f"{container.field}.env[{entry['name']}]", _shown(entry), fix, code="ShareVariable")
    wanted = [_reference(name, config_map) for name in VARIABLES]
    if ours == wanted:
        return []
    container.body["env"] = [*others, *wanted]
    return [f"container {container.name} gets its GPU from ConfigMap {config_map}"]


def _hide(container: ManifestContainer) -> list[str]:
    """The other containers get no GPU, whatever their images say."""
    found = [entry for entry in _variables(container) if entry.get("name") == names.VISIBLE_DEVICES]
    for entry in found:
        if entry.get("valueFrom") or entry.get("value") not in _NONE:
            raise RequestError(
                f"{container.field}.env[{names.VISIBLE_DEVICES}]",
                _shown(entry),
                "the share of the pod belongs to another container, and GPUs cannot be selected by a variable; remove "
                f"this variable, or name the container in annotation {names.GPU_FRACTION_CONTAINER}",
                code="ShareVariable",
            )
    if not found:
        container.body["env"] = [*_variables(container), dict(NO_GPU)]
    return []


def _runtime_class(spec: dict[str, Any], sharing: Sharing) -> list[str]:
    if sharing.runtime_class is None or spec.get("runtimeClassName"):
        return []
    spec["runtimeClassName"] = sharing.runtime_class
    return [f"runtimeClassName -> {sharing.runtime_class}"]


def _refuse_changes(new: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    for name in ANNOTATIONS:
        if new.get(name) != old.get(name):
            raise RequestError(_field(name), new.get(name, ""), _CHANGED, code="ImmutableShare")


def _keep_variables(new: ManifestContainer, old: ManifestContainer) -> list[str]:
    """A client that replaces the pod by its manifest sends the variables without ours: they are as they were."""
    before, after = _variables(old), _variables(new)
    if after == before or after != [entry for entry in before if not _added(entry)]:
        return []
    new.body["env"] = before
    return [f"variables of container {new.name} kept"]


def _added(entry: Mapping[str, Any]) -> bool:
    return entry == NO_GPU or (entry.get("name") in VARIABLES and bool(entry.get("valueFrom")))


def _is_ours(entry: Mapping[str, Any], prefix: str) -> bool:
    """A reference to a ConfigMap of this pod, as an earlier review added it; the place of the container can have
    changed since."""
    name = entry.get("name")
    source = requests.mapping(entry.get("valueFrom"), "valueFrom").get("configMapKeyRef")
    if name not in VARIABLES or not isinstance(source, dict) or not isinstance(source.get("name"), str):
        return False
    config_map: str = source["name"]
    index = config_map.removeprefix(f"{prefix}-").removeprefix("i")
    return config_map.startswith(f"{prefix}-") and index.isdecimal() and entry == _reference(name, config_map)


def _reference(variable: str, config_map: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": variable}}}


def _shown(entry: Mapping[str, Any]) -> Any:
    return entry.get("valueFrom") or entry.get("value", "")


def _variables(container: ManifestContainer) -> list[dict[str, Any]]:
    field = f"{container.field}.env"
    listed = container.body.get("env") or []
    if not isinstance(listed, list):
        raise RequestError(field, listed, "must be a list of variables")
    return [requests.mapping(entry, f"{field}[{index}]") for index, entry in enumerate(listed)]


def _readable(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> Pod:
    """What the reader of shares needs of a pod."""
    written = {name: annotations[name] for name in ANNOTATIONS if name in annotations}
    for name, value in written.items():
        if not isinstance(value, str):
            raise RequestError(_field(name), value, "must be a text")

    def listed(key: str) -> list[Container]:
        return [Container(name=str(each.get("name", ""))) for each in spec.get(key) or []]

    return Pod(
        metadata=ObjectMeta(annotations=written),
        spec=PodSpec(containers=listed("containers"), init_containers=listed("initContainers")),
    )


def _field(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"


def _spec(pod: Mapping[str, Any]) -> dict[str, Any]:
    return requests.mapping(pod.get("spec"), "spec")


def _annotations(pod: Mapping[str, Any]) -> dict[str, Any]:
    return requests.mapping(
        requests.mapping(pod.get("metadata"), "metadata").get("annotations"), "metadata.annotations"
    )
