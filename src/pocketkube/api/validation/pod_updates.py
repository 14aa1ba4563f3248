"""What may still change once a pod is there: through the pod itself, its ephemeral containers, its resize endpoint."""

from __future__ import annotations

from typing import Any

from pocketkube.api.content import internal_pod_form
from pocketkube.api.storage.strategies import qos_class
from pocketkube.api.validation.problems import Problems

Obj = dict[str, Any]

_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)
_HIGHEST_DEADLINE = 2**31 - 1
_RESIZABLE = ("cpu", "memory")


def update(found: Problems, pod: Obj, old_pod: Obj) -> None:
    new, old = pod.get("spec") or {}, old_pod.get("spec") or {}
    for field in ("containers", "initContainers"):
        if len(new.get(field) or ()) != len(old.get(field) or ()):
            found.forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
    if not _deadline(found, new, old):
        return
    _tolerations(found, new, old)
    _gates(found, new, old)
    if new == old:
        return
    munged = _with_free_fields_of(old, new)
    if old.get("schedulingGates"):
        _gated(found, munged, old)
    if munged != old:
        shown = internal_pod_form.difference("PodSpec", old, munged)
        found.forbidden("spec", f"pod updates may not change fields other than {_UPDATABLE}\n{shown}")


def ephemeral_containers(found: Problems, pod: Obj, old_pod: Obj) -> None:
    path = "spec.ephemeralContainers"
    new = {each.get("name"): each for each in (pod.get("spec") or {}).get("ephemeralContainers") or ()}
    for before in (old_pod.get("spec") or {}).get("ephemeralContainers") or ():
        name, after = before.get("name"), new.get(before.get("name"))
        if after is None:
            found.forbidden(path, f'existing ephemeral containers "{name}" may not be removed\n')
        elif after != before:
            shown = internal_pod_form.difference("EphemeralContainer", before, after)
            found.forbidden(path, f'existing ephemeral containers "{name}" may not be changed\n{shown}')


def resize(found: Problems, pod: Obj, old_pod: Obj) -> None:
    new, old = pod.get("spec") or {}, old_pod.get("spec") or {}
    if qos_class(new) != ((old_pod.get("status") or {}).get("qosClass") or qos_class(old)):
        shown = (pod.get("status") or {}).get("qosClass", "")
        found.invalid("spec", shown, "Pod QOS Class may not change as a result of resizing")
    running = [
        each
        for each in (old_pod.get("status") or {}).get("containerStatuses") or ()
        if (each.get("state") or {}).get("running")
    ]
    if running and "resources" not in running[0]:
        found.forbidden("spec", "Pod running on node without support for resize")
    if _same_containers(found, new, old):
        _only_amounts(found, new, old)


def _only_amounts(found: Problems, new: Obj, old: Obj) -> None:
    before = len(found.causes)
    pairs = list(zip(new.get("containers") or (), old.get("containers") or (), strict=True))
    for index, (container, old_container) in enumerate(pairs):
        _nothing_removed(found, f"spec.containers[{index}].resources", container, old_container)
    for container, old_container in pairs:
        if _without_resizable(container) != _without_resizable(old_container):
            found.forbidden("spec", "only cpu and memory resources are mutable")
    for container, old_container in zip(new.get("initContainers") or (), old.get("initContainers") or (), strict=True):
        sidecar = container.get("restartPolicy") == "Always"
        if sidecar and _without_resizable(container) != _without_resizable(old_container):
            found.forbidden("spec", "only cpu and memory resources for sidecar containers are mutable")
        elif not sidecar and container != old_container:
            found.forbidden("spec", "resources for non-sidecar init containers are immutable")
    other = ("containers", "initContainers")
    if before == len(found.causes) and _without(new, other) != _without(old, other):
        found.forbidden("spec", "only cpu and memory resources are mutable")


def _deadline(found: Problems, new: Obj, old: Obj) -> bool:
    """Whether to look on."""
    path = "spec.activeDeadlineSeconds"
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if after is None:
        if before is not None:
            found.invalid(path, None, "must not update from a positive integer to nil value")
        return True
    if not 0 <= after <= _HIGHEST_DEADLINE:
        found.in_range(path, after, 0, _HIGHEST_DEADLINE)
        return False
    if before is not None and before < after:
        found.invalid(path, after, "must be less than or equal to previous value")
        return False
    return True


def _tolerations(found: Problems, new: Obj, old: Obj) -> None:
    """Only additions; of those that are there, the time may change."""
    there = {_toleration(each) for each in new.get("tolerations") or ()}
    if any(_toleration(each) not in there for each in old.get("tolerations") or ()):
        found.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")


def _toleration(toleration: Obj) -> frozenset[tuple[str, Any]]:
    return frozenset((name, value) for name, value in toleration.items() if name != "tolerationSeconds")


def _gates(found: Problems, new: Obj, old: Obj) -> None:
    known = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            why = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            found.forbidden(f"spec.schedulingGates[{index}].name", why)


def _with_free_fields_of(old: Obj, new: Obj) -> Obj:
    """The new spec, with the old one's values wherever a change is allowed or was refused already."""
    munged = dict(new)
    for field in ("containers", "initContainers"):
        pairs = zip(new.get(field) or (), old.get(field) or (), strict=True)
        images = [_taken({**each}, before, "image") for each, before in pairs]
        if images:
            munged[field] = images
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _taken(munged, old, field)
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and new.get("terminationGracePeriodSeconds") == 1:
        _taken(munged, old, "terminationGracePeriodSeconds")
    return munged


def _gated(found: Problems, munged: Obj, old: Obj) -> None:
    """The scheduling constraints of a gated pod may still be narrowed."""
    selector, before = munged.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if not selector.items() >= before.items():
        why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        found.invalid("spec.nodeSelector", selector, why)
    _taken(munged, old, "nodeSelector")
    affinity, old_affinity = munged.get("affinity") or {}, old.get("affinity") or {}
    if affinity.get("nodeAffinity") == old_affinity.get("nodeAffinity"):
        return
    kept = _taken(dict(affinity), old_affinity, "nodeAffinity")
    if kept:
        munged["affinity"] = kept
    else:
        munged.pop("affinity", None)


def _same_containers(found: Problems, new: Obj, old: Obj) -> bool:
    before = len(found.causes)
    for field in ("containers", "initContainers"):
        there, earlier = new.get(field) or [], old.get(field) or []
        if len(there) != len(earlier):
            found.forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")
            continue
        for index, (each, old_each) in enumerate(zip(there, earlier, strict=True)):
            if each.get("name") != old_each.get("name"):
                found.forbidden(f"spec.{field}[{index}].name", f"{field} may not be renamed or reordered on resize")
    return before == len(found.causes)


def _nothing_removed(found: Problems, path: str, new: Obj, old: Obj) -> None:
    for part in ("requests", "limits"):
        before = (old.get("resources") or {}).get(part) or {}
        if any(name not in ((new.get("resources") or {}).get(part) or {}) for name in before):
            found.forbidden(f"{path}.{part}", f"resource {part} cannot be removed")


def _without_resizable(container: Obj) -> Obj:
    resources = container.get("resources") or {}
    fixed = {
        part: kept
        for part, amounts in resources.items()
        if (kept := _without(amounts, _RESIZABLE) if isinstance(amounts, dict) else amounts)
    }
    return {**_without(container, ("resizePolicy",)), "resources": fixed}


def _taken(target: Obj, source: Obj, field: str) -> Obj:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)
    return target


def _without(obj: Obj, names: tuple[str, ...]) -> Obj:
    return {name: value for name, value in obj.items() if name not in names}
