"""Rules for pods and pod templates."""

from __future__ import annotations

from typing import Any

from pocketkube.api.validation import containers, name_rules
from pocketkube.api.validation import pod_updates as updates
from pocketkube.api.validation.problems import Problems
from pocketkube.api.validation.scheduling import pod_scheduling
from pocketkube.api.validation.selectors import labels
from pocketkube.api.validation.volumes import volumes

Obj = dict[str, Any]

RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_HIGHEST_DEADLINE = 2**31 - 1
# What a container that helps to debug may not have: it is no part of the workload.
_NOT_EPHEMERAL = (
    *("ports", "resources", "resizePolicy", "restartPolicyRules", "livenessProbe", "readinessProbe", "startupProbe"),
    "lifecycle",
)


def pod(found: Problems, new: Obj, old: Obj | None, subresource: str = "") -> None:
    spec = new.get("spec") or {}
    pod_spec(found, "spec", spec)
    if old is None:
        if spec.get("ephemeralContainers"):
            found.forbidden("spec.ephemeralContainers", "cannot be set on create")
        if spec.get("nodeName") and spec.get("schedulingGates"):
            found.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
        return
    _UPDATES.get(subresource, updates.update)(found, new, old)


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
        ("hostname", name_rules.dns_label),
        ("subdomain", name_rules.dns_label),
        ("nodeName", name_rules.dns_subdomain),
        ("serviceAccountName", name_rules.dns_subdomain),
        ("priorityClassName", name_rules.dns_subdomain),
        ("runtimeClassName", name_rules.dns_subdomain),
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
    taken: set[Any] = set()
    for index, each in enumerate(ordinary):
        here = f"{path}.containers[{index}]"
        containers.container(found, here, each, volume_names, host_network=host_network)
        if each.get("name") and each["name"] in taken:
            found.duplicate(f"{here}.name", each["name"])
        taken.add(each.get("name"))
        containers.probes(found, here, each)
        _host_ports(found, f"{here}.ports", each.get("ports") or [], host_ports)
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
    _ephemeral_containers(found, path, spec, volume_names)


def _ephemeral_containers(found: Problems, path: str, spec: Obj, volume_names: set[str]) -> None:
    names = {each.get("name") for field in ("containers", "initContainers") for each in spec.get(field) or ()}
    taken = set(names)
    for index, each in enumerate(spec.get("ephemeralContainers") or ()):
        here = f"{path}.ephemeralContainers[{index}]"
        containers.container(found, here, _without_refused(each), volume_names)
        if each.get("name") and each["name"] in taken:
            found.duplicate(f"{here}.name", each["name"])
        taken.add(each.get("name"))
        if each.get("targetContainerName") and each["targetContainerName"] not in names:
            found.not_found(f"{here}.targetContainerName", each["targetContainerName"])
        for field in _NOT_EPHEMERAL:
            if each.get(field):
                found.forbidden(f"{here}.{field}", "cannot be set for an Ephemeral Container")
        for number, mount in enumerate(each.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    found.forbidden(
                        f"{here}.volumeMounts[{number}].{field}", "cannot be set for an Ephemeral Container"
                    )


def _without_refused(container: Obj) -> Obj:
    return {name: value for name, value in container.items() if name != "resources"}


def _host_ports(found: Problems, path: str, ports: list[Obj], taken: set[str]) -> None:
    for index, port in enumerate(ports):
        if not port.get("hostPort"):
            continue
        key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
        if key in taken:
            found.duplicate(f"{path}[{index}].hostPort", key)
        taken.add(key)


_UPDATES = {"ephemeralcontainers": updates.ephemeral_containers, "resize": updates.resize}
