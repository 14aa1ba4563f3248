"""Whether an object may be stored: the rules of kube-apiserver for the kinds that people use.

`validate` answers every cause at once. Types and unknown fields were checked when the object was decoded;
here are names, required fields, ranges, references between fields and what may not change.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pocketkube.api.registry import Resource
from pocketkube.api.status import Cause
from pocketkube.api.validation import name_rules, network, pods, policies, webhooks, workloads
from pocketkube.api.validation import other_kinds as objects
from pocketkube.api.validation.problems import Problems, TooManyProblems
from pocketkube.api.validation.selectors import labels

Obj = dict[str, Any]
Check = Callable[[Problems, Obj, Obj | None], None]

_ANNOTATIONS_LIMIT = 256 * 1024
_PATH_SEGMENT_NAMES = {"rbac_v1.Role", "rbac_v1.ClusterRole", "rbac_v1.RoleBinding", "rbac_v1.ClusterRoleBinding"}
_POD = "core_v1.Pod"
_LABEL_NAMES = {"core_v1.Namespace"}
_STANDARD_FINALIZERS = {"foregroundDeletion", "kubernetes", "orphan"}
_DNS1035_NAMES = {"core_v1.Service"}


def validate(resource: Resource, new: Obj, old: Obj | None, subresource: str = "") -> list[Cause]:
    """What is wrong with an object, or with the step from the old one to the new one through an endpoint."""
    found = Problems()
    with suppress(TooManyProblems):
        _metadata(found, resource, new["metadata"], old["metadata"] if old else None)
        check = _RULES.get(resource.model or "")
        if resource.model == _POD:
            pods.pod(found, new, old, subresource)
        elif check is not None:
            check(found, new, old)
    return found.causes


def _metadata(found: Problems, resource: Resource, new: Obj, old: Obj | None) -> None:
    name = new.get("name") or ""
    if not name:
        if not new.get("generateName"):
            found.required("metadata.name", "name or generateName is required")
    elif old is None:
        found.all_of("metadata.name", name, _name_rule(resource)(name))
    if resource.namespaced and not new.get("namespace"):
        found.required("metadata.namespace")
    labels(found, "metadata.labels", new.get("labels") or {})
    _annotations(found, new.get("annotations") or {})
    _finalizers(found, new.get("finalizers") or [])
    _owners(found, new.get("ownerReferences") or [])
    if old is not None:
        for field in ("name", "namespace", "uid", "creationTimestamp"):
            found.immutable(f"metadata.{field}", new.get(field), old.get(field))
        _deletion(found, new, old)


def _annotations(found: Problems, given: Obj) -> None:
    for key in given:
        found.all_of("metadata.annotations", key, name_rules.qualified_name(key.lower()))
    if sum(len(key) + len(value) for key, value in given.items()) > _ANNOTATIONS_LIMIT:
        found.too_long("metadata.annotations", _ANNOTATIONS_LIMIT)


def _finalizers(found: Problems, finalizers: list[str]) -> None:
    for finalizer in finalizers:
        found.all_of("metadata.finalizers", finalizer, name_rules.qualified_name(finalizer))
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            found.invalid(f"metadata.finalizers[{index}]", finalizer, why)


def _owners(found: Problems, owners: list[Obj]) -> None:
    controllers: list[str] = []
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                found.invalid(f"metadata.ownerReferences.{field}", owner.get(field) or "", "must not be empty")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        detail = 'Only one reference can have Controller set to true. Found "true" in references for ' + " and ".join(
            controllers[:2]
        )
        found.invalid("metadata.ownerReferences", owners, detail)


def _deletion(found: Problems, new: Obj, old: Obj) -> None:
    if not old.get("deletionTimestamp"):
        return
    known = set(old.get("finalizers") or ())
    added = [each for each in new.get("finalizers") or () if each not in known]
    if added:
        listed = ", ".join(f'"{each}"' for each in added)
        found.forbidden(
            "metadata.finalizers",
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}",
        )


def _name_rule(resource: Resource) -> name_rules.NameRule:
    if resource.model in _PATH_SEGMENT_NAMES:
        return name_rules.path_segment
    if resource.model in _LABEL_NAMES:
        return _namespace_name
    if resource.model in _DNS1035_NAMES:
        return name_rules.dns1035_label
    return name_rules.dns_subdomain


def _namespace_name(name: str) -> tuple[str, ...]:
    return ("must not contain dots",) if "." in name else name_rules.dns_label(name)


_RULES: dict[str, Check] = {
    "admissionregistration_v1.MutatingWebhookConfiguration": webhooks.mutating,
    "admissionregistration_v1.ValidatingWebhookConfiguration": webhooks.validating,
    "admissionregistration_v1.ValidatingAdmissionPolicy": policies.policy,
    "admissionregistration_v1.ValidatingAdmissionPolicyBinding": policies.binding,
    "apps_v1.DaemonSet": workloads.daemon_set,
    "apps_v1.Deployment": workloads.deployment,
    "apps_v1.ReplicaSet": workloads.replica_set,
    "apps_v1.StatefulSet": workloads.stateful_set,
    "batch_v1.CronJob": workloads.cron_job,
    "batch_v1.Job": workloads.job,
    "coordination_v1.Lease": objects.lease,
    "core_v1.ConfigMap": objects.config_map,
    "core_v1.Event": objects.event,
    "core_v1.LimitRange": objects.limit_range,
    "core_v1.Node": objects.node,
    "core_v1.PersistentVolumeClaim": objects.claim,
    "core_v1.ResourceQuota": objects.quota,
    "core_v1.Secret": objects.secret,
    "core_v1.Service": network.service,
    "discovery_v1.EndpointSlice": network.endpoint_slice,
    "node_v1.RuntimeClass": objects.runtime_class,
    "policy_v1.PodDisruptionBudget": objects.disruption_budget,
    "rbac_v1.ClusterRole": objects.cluster_role,
    "rbac_v1.ClusterRoleBinding": objects.cluster_binding,
    "rbac_v1.Role": objects.role,
    "rbac_v1.RoleBinding": objects.binding,
    "scheduling_v1.PriorityClass": objects.priority_class,
    "storage_v1.StorageClass": objects.storage_class,
}
