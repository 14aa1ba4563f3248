"""Defaults of the built-in kinds, as kube-apiserver 1.34 sets them. Pods have a module of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pocketkube.api.content import pod_defaults
from pocketkube.api.registry import Resource

Obj = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_MAX_INT32 = 2**31 - 1
_NAME_LABEL = "kubernetes.io/metadata.name"


def apply(resource: Resource, obj: Obj) -> None:
    """Fill in what was left out, in place. Expects an object in its canonical form; twice is as good as once."""
    fill = _FILLERS.get(resource.model or "")
    if fill is not None:
        fill(obj)


def _deployment(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    _template(spec)


def _replica_set(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("replicas", 1)
    _template(spec)


def _stateful_set(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    for claim in spec.get("volumeClaimTemplates") or ():
        _claim(claim)
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
    _template(spec)


def _daemon_set(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    _template(spec)


def _job(obj: Obj) -> None:
    spec = _spec(obj)
    _job_spec(spec)
    labels = (spec.get("template") or {}).get("metadata", {}).get("labels")
    if labels and not _metadata(obj).get("labels"):
        # One dict for both, as in the real server: labels that the job adds to its template show on the job too.
        _metadata(obj)["labels"] = labels


def _job_spec(spec: Obj) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern.setdefault("status", "True")
    _template(spec)


def _cron_job(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    _template(spec.setdefault("jobTemplate", {}).setdefault("spec", {}))


def _replication_controller(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("replicas", 1)
    labels = (spec.get("template") or {}).get("metadata", {}).get("labels")
    if labels:
        spec.setdefault("selector", dict(labels))
        _metadata(obj).setdefault("labels", dict(labels))
    if "template" in spec:
        _template(spec)


def _pod_template(obj: Obj) -> None:
    _template(obj)


def _service(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {}).setdefault("timeoutSeconds", 10800)
    else:
        spec.pop("sessionAffinityConfig", None)
    kind = spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port["targetPort"] = port.get("targetPort") or port.get("port", 0)
    if kind in ("NodePort", "LoadBalancer") or spec.get("externalIPs"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _endpoints(obj: Obj) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _endpoint_slice(obj: Obj) -> None:
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _namespace(obj: Obj) -> None:
    if name := _metadata(obj).get("name"):
        _metadata(obj).setdefault("labels", {})[_NAME_LABEL] = name
    obj.setdefault("status", {}).setdefault("phase", "Active")


def _node(obj: Obj) -> None:
    node_status = obj.setdefault("status", {})
    if "capacity" in node_status:
        node_status.setdefault("allocatable", dict(node_status["capacity"]))


def _secret(obj: Obj) -> None:
    obj.setdefault("type", "Opaque")


def _volume(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    if "hostPath" in spec:
        spec["hostPath"].setdefault("type", "")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _claim(obj: Obj) -> None:
    pod_defaults.claim_spec(_spec(obj))
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _limit_range(obj: Obj) -> None:
    for item in _spec(obj).get("limits") or ():
        if item.get("type") != "Container":
            continue
        limits = (item.get("max") or {}) | (item.get("default") or {})
        requests = (item.get("min") or {}) | limits | (item.get("defaultRequest") or {})
        for name, amounts in (("default", limits), ("defaultRequest", requests)):
            if amounts:
                item[name] = amounts


def _webhooks(obj: Obj) -> None:
    for hook in obj.get("webhooks") or ():
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        hook.setdefault("timeoutSeconds", 10)
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")
        if service := (hook.get("clientConfig") or {}).get("service"):
            service.setdefault("port", 443)


def _mutating_webhooks(obj: Obj) -> None:
    _webhooks(obj)
    for hook in obj.get("webhooks") or ():
        hook.setdefault("reinvocationPolicy", "Never")


def _policy(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("failurePolicy", "Fail")
    _match_resources(spec.get("matchConstraints"))


def _policy_binding(obj: Obj) -> None:
    _match_resources(_spec(obj).get("matchResources"))


def _match_resources(match: Obj | None) -> None:
    if match is None:
        return
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    for rule in (*(match.get("resourceRules") or ()), *(match.get("excludeResourceRules") or ())):
        rule.setdefault("scope", "*")


def _definition(obj: Obj) -> None:
    spec = _spec(obj)
    names = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    if kind:
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    for version in spec.get("versions") or ():
        # columns that a client left to the server
        version.setdefault("served", False)
        version.setdefault("storage", False)


def _binding(obj: Obj) -> None:
    role = obj.setdefault("roleRef", {})
    role["apiGroup"] = role.get("apiGroup") or _RBAC
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = subject.get("apiGroup") or _RBAC


def _storage_class(obj: Obj) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _csi_driver(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("attachRequired", True)
    spec.setdefault("podInfoOnMount", False)
    spec.setdefault("storageCapacity", False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
    spec.setdefault("requiresRepublish", False)
    spec.setdefault("seLinuxMount", False)


def _priority_class(obj: Obj) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _autoscaler(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("minReplicas", 1)
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    spec.setdefault("metrics", [{"type": "Resource", "resource": cpu}])


def _network_policy(obj: Obj) -> None:
    spec = _spec(obj)
    spec.setdefault("policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _ingress_class(obj: Obj) -> None:
    if parameters := _spec(obj).get("parameters"):
        parameters.setdefault("scope", "Cluster")


def _claim_requests(devices: Obj) -> None:
    for request in devices.get("requests") or ():
        for part in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if part is not None:
                part.setdefault("allocationMode", "ExactCount")
                if part["allocationMode"] == "ExactCount":
                    part.setdefault("count", 1)


def _resource_claim(obj: Obj) -> None:
    _claim_requests(_spec(obj).get("devices") or {})


def _resource_claim_template(obj: Obj) -> None:
    _resource_claim(_spec(obj))


def _spec(obj: Obj) -> Obj:
    spec: Obj = obj.setdefault("spec", {})
    return spec


def _metadata(obj: Obj) -> Obj:
    metadata: Obj = obj.setdefault("metadata", {})
    return metadata


def _template(spec: Obj) -> None:
    pod_defaults.pod_template(spec.setdefault("template", {}))


_FILLERS: dict[str, Callable[[Obj], None]] = {
    "admissionregistration_v1.MutatingWebhookConfiguration": _mutating_webhooks,
    "admissionregistration_v1.ValidatingWebhookConfiguration": _webhooks,
    "admissionregistration_v1.ValidatingAdmissionPolicy": _policy,
    "admissionregistration_v1.ValidatingAdmissionPolicyBinding": _policy_binding,
    "apiextensions_v1.CustomResourceDefinition": _definition,
    "apps_v1.DaemonSet": _daemon_set,
    "apps_v1.Deployment": _deployment,
    "apps_v1.ReplicaSet": _replica_set,
    "apps_v1.StatefulSet": _stateful_set,
    "autoscaling_v2.HorizontalPodAutoscaler": _autoscaler,
    "batch_v1.CronJob": _cron_job,
    "batch_v1.Job": _job,
    "core_v1.Endpoints": _endpoints,
    "core_v1.LimitRange": _limit_range,
    "core_v1.Namespace": _namespace,
    "core_v1.Node": _node,
    "core_v1.PersistentVolume": _volume,
    "core_v1.PersistentVolumeClaim": _claim,
    "core_v1.Pod": pod_defaults.pod,
    "core_v1.PodTemplate": _pod_template,
    "core_v1.ReplicationController": _replication_controller,
    "core_v1.Secret": _secret,
    "core_v1.Service": _service,
    "discovery_v1.EndpointSlice": _endpoint_slice,
    "networking_v1.IngressClass": _ingress_class,
    "networking_v1.NetworkPolicy": _network_policy,
    "rbac_v1.ClusterRoleBinding": _binding,
    "rbac_v1.RoleBinding": _binding,
    "resource_v1.ResourceClaim": _resource_claim,
    "resource_v1.ResourceClaimTemplate": _resource_claim_template,
    "scheduling_v1.PriorityClass": _priority_class,
    "storage_v1.CSIDriver": _csi_driver,
    "storage_v1.StorageClass": _storage_class,
}
