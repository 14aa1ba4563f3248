"""Updates, for example when a manifest is applied a second time (D05).

Resources of a pod are immutable, and the manifest still contains `nvidia.com/mig-1g.5gb` where admission changed
the pod to `mig.das.com/1g.5gb`. Therefore nothing is decided again: the changes made at creation are read from the
old object and repeated on the new one, which makes the two equal.
"""

from __future__ import annotations

from typing import Any

from apportion.admission import requests
from apportion.admission.requests import ManifestContainer, Want
from apportion.apis import names, profiles
from apportion.apis.errors import RequestError


def repeat(new: dict[str, Any], old: dict[str, Any], root: str) -> list[str]:
    """Repeat on a pod (or a pod template) the changes that were made at creation."""
    spec, before = (requests.mapping(pod.get("spec"), root) for pod in (new, old))
    earlier = {container.name: container for container in requests.containers(before, root)}
    done: list[str] = []
    for container in requests.containers(spec, root):
        if container.name in earlier:
            done += _slices(container, earlier[container.name])
    if done:
        _memory_record(new, old)
    return done + _fields(spec, before)


def _slices(new: ManifestContainer, old: ManifestContainer) -> list[str]:
    held = {want.profile: want.count for want in requests.slices(old) if want.ours}
    again = [want for want in requests.slices(new) if not want.ours and want.profile in held]
    for want in again:
        if want.count != held[want.profile]:
            raise _changed(want, held[want.profile])
        new.drop(want.resource)
        new.put(profiles.slice_resource(want.profile), want.count)
    memory = old.amount(names.GPU_MEMORY)
    if again and memory is not None and new.amount(names.GPU_MEMORY) is None:
        new.put(names.GPU_MEMORY, memory)
    return [f"{want.resource} kept as {profiles.slice_resource(want.profile)}" for want in again]


def _fields(spec: dict[str, Any], before: dict[str, Any]) -> list[str]:
    scheduler = before.get("schedulerName")
    current = spec.get("schedulerName") or names.DEFAULT_SCHEDULER
    if scheduler not in names.OUR_SCHEDULERS or current != names.DEFAULT_SCHEDULER:
        return []
    spec["schedulerName"] = scheduler
    return [f"schedulerName kept as {scheduler}"]


def _memory_record(new: dict[str, Any], old: dict[str, Any]) -> None:
    recorded = ((old.get("metadata") or {}).get("annotations") or {}).get(names.INJECTED_MEMORY)
    if recorded is not None:
        metadata = new.setdefault("metadata", {})
        metadata["annotations"] = (metadata.get("annotations") or {}) | {names.INJECTED_MEMORY: recorded}


def _changed(want: Want, held: int) -> RequestError:
    return RequestError(
        want.field,
        want.count,
        f"the pod has {held}, and devices of a pod cannot be changed; delete the pod and create it again",
        code="ImmutableSlices",
    )
