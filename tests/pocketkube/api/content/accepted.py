"""Objects that say as little as possible, by kind: everything else is for the server to fill in.

`completed.json` holds what a real kube-apiserver makes of each of them (`recording.py` writes it).
"""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]

SELECTOR: Obj = {"matchLabels": {"a": "b"}}


def template(**spec: Any) -> Obj:
    containers = [{"name": "c", "image": "nginx:1.2"}]
    return {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers, **spec}}


def container(**fields: Any) -> list[Obj]:
    return [{"name": "c", "image": "i", **fields}]


def workload(**spec: Any) -> Obj:
    return {"spec": {"selector": SELECTOR, "template": template(), **spec}}


_CLAIM: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
_RULE: Obj = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
_HOOK: Obj = {"name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None"}
_SCHEMA: Obj = {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}

CASES: dict[str, tuple[str, str, Obj]] = {
    "pod": ("v1", "pods", {"spec": {"containers": container()}}),
    "pod with devices": (
        "v1",
        "pods",
        {"spec": {"containers": container(resources={"limits": {"nvidia.com/gpu": 1, "cpu": "0.0001"}})}},
    ),
    "pod on the host network": (
        "v1",
        "pods",
        {
            "spec": {
                "serviceAccountName": "default",
                "automountServiceAccountToken": False,
                "hostNetwork": True,
                "containers": container(image="i:latest", ports=[{"containerPort": 80}]),
            }
        },
    ),
    "pod with probes": (
        "v1",
        "pods",
        {
            "spec": {
                "containers": container(
                    envFrom=[{"configMapRef": {"name": "x"}}],
                    env=[
                        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                        {"name": "B", "value": ""},
                    ],
                    lifecycle={"postStart": {"httpGet": {"port": 1}}, "preStop": {"exec": {"command": ["x"]}}},
                    startupProbe={"grpc": {"port": 1}},
                    livenessProbe={"exec": {"command": ["a"]}},
                    readinessProbe={"httpGet": {"port": "http"}, "initialDelaySeconds": 5},
                )
            }
        },
    ),
    "pod with volumes": (
        "v1",
        "pods",
        {
            "spec": {
                "containers": container(),
                "volumes": [
                    {"name": "a"},
                    {"name": "b", "hostPath": {"path": "/x"}},
                    {"name": "c", "configMap": {"name": "x", "items": [{"key": "a", "path": "b", "mode": 0}]}},
                    {"name": "s", "secret": {"secretName": "q"}},
                    {
                        "name": "d",
                        "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]},
                    },
                    {"name": "e", "emptyDir": {"sizeLimit": "1Gi", "medium": ""}},
                    {"name": "j", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                    {"name": "p", "persistentVolumeClaim": {"claimName": "x"}},
                    {"name": "h", "ephemeral": {"volumeClaimTemplate": {"spec": _CLAIM}}},
                ],
            }
        },
    ),
    "gated pod": (
        "v1",
        "pods",
        {
            "spec": {
                "containers": container(),
                "initContainers": [{"name": "s", "image": "reg/x@sha256:" + "a" * 64, "restartPolicy": "Always"}],
                "schedulingGates": [{"name": "a/b"}],
                "readinessGates": [{"conditionType": "x"}],
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
                "dnsConfig": {"nameservers": ["1.1.1.1"]},
            }
        },
    ),
    "deployment": ("apps/v1", "deployments", workload()),
    "deployment that recreates": ("apps/v1", "deployments", workload(replicas=0, strategy={"type": "Recreate"})),
    "replica set": ("apps/v1", "replicasets", workload()),
    "stateful set": (
        "apps/v1",
        "statefulsets",
        workload(serviceName="s", volumeClaimTemplates=[{"metadata": {"name": "v"}, "spec": _CLAIM}]),
    ),
    "stateful set on delete": ("apps/v1", "statefulsets", workload(updateStrategy={"type": "OnDelete"})),
    "daemon set": ("apps/v1", "daemonsets", workload(template=template(tolerations=[{"operator": "Exists"}]))),
    "job": ("batch/v1", "jobs", {"spec": {"template": template(restartPolicy="Never")}}),
    "indexed job": (
        "batch/v1",
        "jobs",
        {
            "spec": {
                "parallelism": 3,
                "backoffLimit": 0,
                "completionMode": "Indexed",
                "completions": 2,
                "template": template(restartPolicy="OnFailure"),
            }
        },
    ),
    "cron job": (
        "batch/v1",
        "cronjobs",
        {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template(restartPolicy="Never")}}}},
    ),
    "service": ("v1", "services", {"spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}),
    "headless service": (
        "v1",
        "services",
        {"spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}]}},
    ),
    "node port": (
        "v1",
        "services",
        {
            "spec": {
                "type": "NodePort",
                "sessionAffinity": "ClientIP",
                "ports": [{"port": 80, "protocol": "UDP", "name": "x"}],
            }
        },
    ),
    "external name": ("v1", "services", {"spec": {"type": "ExternalName", "externalName": "a.b.c"}}),
    "load balancer": ("v1", "services", {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}),
    "config map": ("v1", "configmaps", {"data": {"a": "b"}, "binaryData": {"c": "AAE="}}),
    "empty config map": ("v1", "configmaps", {"data": {}}),
    "secret": ("v1", "secrets", {"data": {"a": "Yg=="}, "stringData": {"c": "d"}}),
    "service account": ("v1", "serviceaccounts", {}),
    "namespace": ("v1", "namespaces", {}),
    "limit range": (
        "v1",
        "limitranges",
        {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"}}]}},
    ),
    "quota": ("v1", "resourcequotas", {"spec": {"hard": {"pods": "10", "requests.cpu": "4000m"}}}),
    "endpoints": ("v1", "endpoints", {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
    "endpoint slice": (
        "discovery.k8s.io/v1",
        "endpointslices",
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]},
    ),
    "pod template": ("v1", "podtemplates", {"template": template()}),
    "replication controller": ("v1", "replicationcontrollers", {"spec": {"template": template()}}),
    "lease": (
        "coordination.k8s.io/v1",
        "leases",
        {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0}},
    ),
    "disruption budget": ("policy/v1", "poddisruptionbudgets", {"spec": {"minAvailable": 1, "selector": SELECTOR}}),
    "role": (
        "rbac.authorization.k8s.io/v1",
        "roles",
        {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    ),
    "role binding": (
        "rbac.authorization.k8s.io/v1",
        "rolebindings",
        {
            "roleRef": {"kind": "Role", "name": "x"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "x", "namespace": "default"},
                {"kind": "User", "name": "u"},
            ],
        },
    ),
    "cluster role binding": (
        "rbac.authorization.k8s.io/v1",
        "clusterrolebindings",
        {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"}},
    ),
    "priority class": ("scheduling.k8s.io/v1", "priorityclasses", {"value": 0}),
    "lower priority": (
        "scheduling.k8s.io/v1",
        "priorityclasses",
        {"value": -5, "preemptionPolicy": "Never", "globalDefault": False, "description": "d"},
    ),
    "runtime class": ("node.k8s.io/v1", "runtimeclasses", {"handler": "h"}),
    "storage class": ("storage.k8s.io/v1", "storageclasses", {"provisioner": "x.y"}),
    "storage driver": ("storage.k8s.io/v1", "csidrivers", {}),
    "network policy": (
        "networking.k8s.io/v1",
        "networkpolicies",
        {"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}},
    ),
    "ingress": (
        "networking.k8s.io/v1",
        "ingresses",
        {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    ),
    "mutating webhook": (
        "admissionregistration.k8s.io/v1",
        "mutatingwebhookconfigurations",
        {"webhooks": [{**_HOOK, "rules": [_RULE], "clientConfig": {"service": {"name": "s", "namespace": "n"}}}]},
    ),
    "validating webhook": (
        "admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        {"webhooks": [{**_HOOK, "rules": [], "clientConfig": {"url": "https://127.0.0.1:1/x"}}]},
    ),
    "resource claim": (
        "resource.k8s.io/v1",
        "resourceclaims",
        {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}}},
    ),
    "device class": ("resource.k8s.io/v1", "deviceclasses", {"spec": {}}),
}
