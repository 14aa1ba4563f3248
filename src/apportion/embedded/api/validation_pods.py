"""Rules for pods and pod templates, and for what may still change once a pod is there."""

from __future__ import annotations

from typing import Any

from apportion.embedded.api import naming
from apportion.embedded.api import validation_containers as containers
from apportion.embedded.api.problems import Problems
from apportion.embedded.api.validation_scheduling import pod_scheduling
from apportion.embedded.api.validation_selectors import labels
from apportion.embedded.api.validation_volumes import volumes

Obj = dict[str, Any]

RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_HIGHEST_DEADLINE = 2**31 - 1
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod(found: Problems, new: Obj, old: Obj | None) -> None:
    spec = new.get("spec") or {}
    pod_spec(found, "spec", spec)
    if old is not None:
        _update(found, spec, old.get("spec") or {})


def pod_template(found: Problems, path: str, template: Obj) -> None:
    metadata = template.get("metadata") or {}
    labels(found, f"{path}.metadata.labels", metadata.get("labels") or {})
    pod_spec(found, f"{path}.spec", template.get("spec") or {})


def pod_spec(found: Problems, path: str, spec: Obj) -> None:
    names = volumes(found, f"{path}.volumes", spec.get("volumes") or [])
    _containers(found, path, spec, names)
    found.one_of(f"{path}.restartPolicy", spec.get("restartPolicy"), RESTART_POLICIES)
    found.one_of(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    pod_scheduling(found, path, spec)
    for field, rule in (
        ("hostname", naming.dns_label),
        ("subdomain", naming.dns_label),
        ("nodeName", naming.dns_subdomain),
        ("serviceAccountName", naming.dns_subdomain),
        ("priorityClassName", naming.dns_subdomain),
        ("runtimeClassName", naming.dns_subdomain),
    ):
        if spec.get(field):
            found.all_of(f"{path}.{field}", spec[field], rule(spec[field]))
    if "activeDeadlineSeconds" in spec:
        found.in_range(f"{path}.activeDeadlineSeconds", spec["activeDeadlineSeconds"], 1, _HIGHEST_DEADLINE)


def _containers(found: Problems, path: str, spec: Obj, volume_names: set[str]) -> None:
    ordinary, initial = spec.get("containers") or [], spec.get("initContainers") or []
    host_network = bool(spec.get("hostNetwork"))
    if not ordinary:
        found.required(f"{path}.containers")
    host_ports: set[str] = set()
    for index, each in enumerate(ordinary):
        here = f"{path}.containers[{index}]"
        containers.container(found, here, each, volume_names, host_network=host_network)
        if each.get("name") and each["name"] in {other.get("name") for other in ordinary[:index]}:
            found.duplicate(f"{here}.name", each["name"])
        containers.probes(found, here, each)
        _host_ports(found, f"{here}.ports", each.get("ports") or [], host_ports)
    taken = {each.get("name") for each in ordinary}
    for index, each in enumerate(initial):
        here = f"{path}.initContainers[{index}]"
        containers.container(found, here, each, volume_names, host_network=host_network)
        if each.get("name") and each["name"] in taken:
            found.duplicate(f"{here}.name", each["name"])
        taken.add(each.get("name"))
        if each.get("restartPolicy") == "Always":
            containers.probes(found, here, each)
            continue
        for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if field in each:
                found.forbidden(f"{here}.{field}", "may not be set for init containers without restartPolicy=Always")


def _host_ports(found: Problems, path: str, ports: list[Obj], taken: set[str]) -> None:
    for index, port in enumerate(ports):
        if not port.get("hostPort"):
            continue
        key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
        if key in taken:
            found.duplicate(f"{path}[{index}].hostPort", key)
        taken.add(key)


def _update(found: Problems, new: Obj, old: Obj) -> None:
    for field in ("containers", "initContainers"):
        if len(new.get(field) or ()) != len(old.get(field) or ()):
            found.forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
    if _added_gates(found, new, old) or _longer_deadline(found, new, old):
        return
    gated = bool(old.get("schedulingGates"))
    before, after = _fixed_part(old, gated=gated), _fixed_part(new, gated=gated)
    tolerations, old_tolerations = new.get("tolerations") or [], old.get("tolerations") or []
    kept = all(each in tolerations for each in old_tolerations)
    node_selector = (new.get("nodeSelector") or {}).items() >= (old.get("nodeSelector") or {}).items()
    if before != after or not kept or (gated and not node_selector):
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)] or ["tolerations"]
        found.forbidden("spec", f"{_FIXED}\n@@ changed: {', '.join(sorted(changed))}")


def _added_gates(found: Problems, new: Obj, old: Obj) -> bool:
    known = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    added = [
        (index, gate["name"])
        for index, gate in enumerate(new.get("schedulingGates") or ())
        if gate.get("name") not in known
    ]
    for index, name in added:
        why = f"only deletion is allowed, but found new scheduling gate '{name}'"
        found.forbidden(f"spec.schedulingGates[{index}].name", why)
    return bool(added)


def _longer_deadline(found: Problems, new: Obj, old: Obj) -> bool:
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is None or after == before:
        return False
    if after is None:
        found.invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
    elif after > before:
        found.invalid("spec.activeDeadlineSeconds", after, "must be less than or equal to previous value")
    else:
        return False
    return True


def _fixed_part(spec: Obj, *, gated: bool) -> Obj:
    """A pod's spec without what may change. Gated pods may still learn where they can run."""
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates"} | (
        {"nodeSelector", "affinity"} if gated else set()
    )
    fixed = {name: value for name, value in spec.items() if name not in free}
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        fixed["terminationGracePeriodSeconds"] = 1
    for field in ("containers", "initContainers"):
        fixed[field] = [{**each, "image": ""} for each in spec.get(field) or ()]
    fixed.pop("ephemeralContainers", None)
    return fixed
