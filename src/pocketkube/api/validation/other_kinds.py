"""Rules for the many kinds that have only a few: configuration, storage, quotas, roles, leases, priorities."""

from __future__ import annotations

import base64
from typing import Any

from apportion.apis import quantity
from pocketkube.api.validation import name_rules, problems
from pocketkube.api.validation.problems import Problems
from pocketkube.api.validation.scheduling import taints
from pocketkube.api.validation.selectors import label_selector
from pocketkube.api.validation.workloads import count_or_percent

Obj = dict[str, Any]

LARGEST_DATA = 1024 * 1024
HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

_FROZEN = "field is immutable when `immutable` is set"
_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SECRET_KEYS = {
    "kubernetes.io/basic-auth": ("username", "password"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_QUOTA_RESOURCES = {
    *("cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"),
    *("limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.storage", "pods", "services", "secrets"),
    *("configmaps", "replicationcontrollers", "resourcequotas", "persistentvolumeclaims", "services.nodeports"),
    "services.loadbalancers",
}


def config_map(found: Problems, new: Obj, old: Obj | None) -> None:
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    for key in data:
        found.all_of(f"data[{key}]", key, name_rules.config_key(key))
        if key in binary:
            found.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in binary:
        found.all_of(f"binaryData[{key}]", key, name_rules.config_key(key))
    if sum(len(value.encode()) for value in data.values()) + _decoded_size(binary) > LARGEST_DATA:
        found.too_long("[]", LARGEST_DATA)
    _frozen(found, new, old, ("data", "binaryData"))


def secret(found: Problems, new: Obj, old: Obj | None) -> None:
    data, kind = new.get("data") or {}, new.get("type") or ""
    for key in data:
        found.all_of(f"data[{key}]", key, name_rules.config_key(key))
    if _decoded_size(data) > LARGEST_DATA:
        found.too_long("data", LARGEST_DATA)
    wanted = _SECRET_KEYS.get(kind, ())
    if kind == "kubernetes.io/basic-auth" and any(key in data for key in wanted):
        wanted = ()
    for key in wanted:
        if key not in data:
            found.required(f"data[{key}]")
    if old is not None:
        found.immutable("type", kind, old.get("type"))
    _frozen(found, new, old, ("data",))


def node(found: Problems, new: Obj, old: Obj | None) -> None:
    del old
    taints(found, "metadata.taints", (new.get("spec") or {}).get("taints") or [])


def claim(found: Problems, new: Obj, old: Obj | None) -> None:
    spec = new.get("spec") or {}
    modes = spec.get("accessModes") or []
    if not modes:
        found.required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            found.unsupported("spec.accessModes", mode, _ACCESS_MODES)
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        found.required("spec.resources[storage]")
    elif quantity.nanos(size) <= 0:
        found.invalid("spec.resources[storage]", size, "must be greater than zero")
    if old is not None and _fixed_claim(spec) != _fixed_claim(old.get("spec") or {}):
        why = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        found.forbidden("spec", f"{why}\n@@ changed")


def quota(found: Problems, new: Obj, old: Obj | None) -> None:
    del old
    for name, amount in ((new.get("spec") or {}).get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        if "/" not in name and name not in _QUOTA_RESOURCES:
            found.invalid(path, name, "must be a standard resource type or fully qualified")
            found.invalid(path, name, "must be a standard resource for quota")
        if quantity.nanos(amount) < 0:
            found.invalid(path, amount, problems.NOT_NEGATIVE)


def limit_range(found: Problems, new: Obj, old: Obj | None) -> None:
    del old
    for index, item in enumerate((new.get("spec") or {}).get("limits") or ()):
        path = f"spec.limits[{index}]"
        if not item.get("type"):
            found.required(f"{path}.type")
        least, most = item.get("min") or {}, item.get("max") or {}
        default, request = item.get("default") or {}, item.get("defaultRequest") or {}
        for name, low in least.items():
            for place, what, high in (
                ("min", "max value", most.get(name)),
                ("defaultRequest", "default request value", request.get(name)),
                ("default", "default value", default.get(name)),
            ):
                if high is not None and quantity.nanos(low) > quantity.nanos(high):
                    shown = high if place == "defaultRequest" else low
                    found.invalid(f"{path}.{place}[{name}]", shown, f"min value {low} is greater than {what} {high}")


def lease(found: Problems, new: Obj, old: Obj | None) -> None:
    del old
    spec = new.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        found.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    found.not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))


def disruption_budget(found: Problems, new: Obj, old: Obj | None) -> None:
    del old
    spec = new.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = {"MinAvailable": spec["minAvailable"], "MaxUnavailable": spec["maxUnavailable"]}
        found.invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            count_or_percent(found, f"spec.{field}", spec[field])
    if "selector" in spec:
        label_selector(found, "spec.selector", spec["selector"])


def priority_class(found: Problems, new: Obj, old: Obj | None) -> None:
    name, value = new["metadata"].get("name") or "", new.get("value", 0)
    if name.startswith("system-"):
        if SYSTEM_PRIORITIES.get(name) != value:
            why = "priority class names with 'system-' prefix are reserved for system use only. error: "
            found.forbidden("metadata.name", f"{why}{name} is not a known system priority class")
    elif value > HIGHEST_USER_PRIORITY:
        why = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        found.forbidden("value", why)
    policies = ("PreemptLowerPriority", "Never")
    found.one_of("preemptionPolicy", new.get("preemptionPolicy"), policies, required=False)
    if old is not None:
        for field, before, after in (
            ("value", old.get("value", 0), value),
            ("preemptionPolicy", old.get("preemptionPolicy"), new.get("preemptionPolicy")),
        ):
            if before != after:
                found.forbidden(field, "may not be changed in an update.")


def role(found: Problems, new: Obj, old: Obj | None) -> None:
    _rules(found, new, namespaced=True)
    del old


def cluster_role(found: Problems, new: Obj, old: Obj | None) -> None:
    _rules(found, new, namespaced=False)
    del old


def binding(found: Problems, new: Obj, old: Obj | None) -> None:
    _binding(found, new, old, ("Role", "ClusterRole"))


def cluster_binding(found: Problems, new: Obj, old: Obj | None) -> None:
    _binding(found, new, old, ("ClusterRole",))
    for index, subject in enumerate(new.get("subjects") or ()):
        if subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
            found.required(f"subjects[{index}].namespace")


def storage_class(found: Problems, new: Obj, old: Obj | None) -> None:
    if not new.get("provisioner"):
        found.required("provisioner")
    found.one_of("reclaimPolicy", new.get("reclaimPolicy"), ("Delete", "Retain"))
    found.one_of("volumeBindingMode", new.get("volumeBindingMode"), ("Immediate", "WaitForFirstConsumer"))
    if old is not None:
        for field in ("parameters", "provisioner", "reclaimPolicy"):
            if new.get(field) != old.get(field):
                found.forbidden(field, f"updates to {field} are forbidden.")


def runtime_class(found: Problems, new: Obj, old: Obj | None) -> None:
    handler = new.get("handler") or ""
    found.all_of("handler", handler, name_rules.dns_label(handler))
    if old is not None:
        found.immutable("handler", handler, old.get("handler"))


def event(found: Problems, new: Obj, old: Obj | None) -> None:
    del old
    given = (new.get("involvedObject") or {}).get("namespace") or ""
    own = new["metadata"].get("namespace") or ""
    if given not in (own, "") or (not given and own != "default"):
        found.invalid("involvedObject.namespace", given, "does not match event.namespace")


def _decoded_size(data: Obj) -> int:
    return sum(len(base64.b64decode(value)) for value in data.values())


def _frozen(found: Problems, new: Obj, old: Obj | None, fields: tuple[str, ...]) -> None:
    if old is None or not old.get("immutable"):
        return
    if not new.get("immutable"):
        found.forbidden("immutable", _FROZEN)
    for field in fields:
        if (new.get(field) or {}) != (old.get(field) or {}):
            found.forbidden(field, _FROZEN)


def _fixed_claim(spec: Obj) -> Obj:
    return {
        key: value for key, value in spec.items() if key not in ("resources", "volumeAttributesClassName", "volumeName")
    }


def _rules(found: Problems, new: Obj, *, namespaced: bool) -> None:
    for index, rule in enumerate(new.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            found.required(f"{path}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            urls = rule["nonResourceURLs"]
            if namespaced:
                found.invalid(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
            elif rule.get("apiGroups") or rule.get("resources"):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                found.invalid(f"{path}.nonResourceURLs", urls, why)
            continue
        if not rule.get("apiGroups"):
            found.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            found.required(f"{path}.resources", "resource rules must supply at least one resource")


def _binding(found: Problems, new: Obj, old: Obj | None, kinds: tuple[str, ...]) -> None:
    reference = new.get("roleRef") or {}
    if reference.get("kind") not in kinds:
        found.unsupported("roleRef.kind", reference.get("kind") or "", kinds)
    if not reference.get("name"):
        found.required("roleRef.name")
    for index, subject in enumerate(new.get("subjects") or ()):
        if not subject.get("name"):
            found.required(f"subjects[{index}].name")
        supported = ("ServiceAccount", "User", "Group")
        if subject.get("kind") not in supported:
            found.unsupported(f"subjects[{index}].kind", subject.get("kind") or "", supported)
    if old is not None and reference != old.get("roleRef"):
        shown = {"APIGroup": reference.get("apiGroup"), "Kind": reference.get("kind"), "Name": reference.get("name")}
        found.invalid("roleRef", shown, "cannot change roleRef")
