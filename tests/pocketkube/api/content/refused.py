"""Objects that an API server refuses, by kind: what is wrong is in the case's name.

`refusals.json` holds what a real kube-apiserver says about each of them (`recording.py` writes it).
"""

from __future__ import annotations

from typing import Any

from tests.pocketkube.api.content.refused_pods import PODS, SELECTOR, limited, pod

Obj = dict[str, Any]


def template(labels: Obj | None = None, **spec: Any) -> Obj:
    return {"metadata": {"labels": labels or {"a": "b"}}, **pod(**spec)}


def workload(**spec: Any) -> Obj:
    return {"spec": {"selector": SELECTOR, "template": template(), **spec}}


def job(**spec: Any) -> Obj:
    return {"spec": {"template": template(restartPolicy="Never"), **spec}}


def service(**spec: Any) -> Obj:
    return {"spec": {"ports": [{"port": 80}], **spec}}


def webhook(**fields: Any) -> Obj:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook: Obj = {
        "name": "a.b.c",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/x"},
        "rules": [rule],
        **fields,
    }
    return {"webhooks": [{key: value for key, value in hook.items() if value is not None}]}


WORKLOADS: dict[tuple[str, str], dict[str, Obj]] = {
    ("apps/v1", "deployments"): {
        "empty": {},
        "no selector": {"spec": {"template": template()}},
        "empty selector": workload(selector={}),
        "selector does not match": workload(selector={"matchLabels": {"a": "x"}}),
        "bad selector operator": workload(selector={"matchExpressions": [{"key": "a", "operator": "Is"}]}),
        "bad selector value": workload(selector={"matchLabels": {"a": "b c"}}),
        "negative replicas": workload(replicas=-1),
        "restart policy": workload(template=template(restartPolicy="Never")),
        "bad strategy": workload(strategy={"type": "Big"}),
        "recreate with rolling update": workload(strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}),
        "no surge and nothing unavailable": workload(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
        "bad percentage": workload(strategy={"rollingUpdate": {"maxSurge": "x%"}}),
        "negative history": workload(revisionHistoryLimit=-1),
        "deadline before ready": workload(progressDeadlineSeconds=5, minReadySeconds=10),
        "bad container in template": workload(template=template(containers=[{"name": "c"}])),
        "deadline in template": workload(template=template(activeDeadlineSeconds=5)),
    },
    ("apps/v1", "replicasets"): {
        "selector does not match": workload(selector={"matchLabels": {"a": "x"}}),
        "negative replicas": workload(replicas=-1),
        "empty": {},
    },
    ("apps/v1", "statefulsets"): {
        "selector does not match": workload(serviceName="s", selector={"matchLabels": {"a": "x"}}),
        "bad policy": workload(serviceName="s", podManagementPolicy="X"),
        "bad strategy": workload(serviceName="s", updateStrategy={"type": "X"}),
        "negative partition": workload(serviceName="s", updateStrategy={"rollingUpdate": {"partition": -1}}),
        "empty": {},
    },
    ("apps/v1", "daemonsets"): {
        "selector does not match": workload(selector={"matchLabels": {"a": "x"}}),
        "bad strategy": workload(updateStrategy={"type": "X"}),
        "nothing unavailable": workload(updateStrategy={"rollingUpdate": {"maxUnavailable": 0}}),
        "empty": {},
    },
    ("batch/v1", "jobs"): {
        "restart policy": job(template=template(restartPolicy="Always")),
        "no restart policy": job(template=template()),
        "negative completions": job(completions=-1),
        "negative parallelism": job(parallelism=-1),
        "negative back-off": job(backoffLimit=-1),
        "negative deadline": job(activeDeadlineSeconds=-1),
        "negative ttl": job(ttlSecondsAfterFinished=-1),
        "bad mode": job(completionMode="X"),
        "indexed without completions": job(completionMode="Indexed", parallelism=2),
        "own selector": job(selector=SELECTOR),
        "empty": {},
    },
    ("batch/v1", "cronjobs"): {
        "no schedule": {"spec": {"jobTemplate": job()}},
        "bad schedule": {"spec": {"schedule": "x", "jobTemplate": job()}},
        "bad policy": {"spec": {"schedule": "* * * * *", "concurrencyPolicy": "X", "jobTemplate": job()}},
        "bad time zone": {"spec": {"schedule": "* * * * *", "timeZone": "Nowhere/City", "jobTemplate": job()}},
        "restart policy": {"spec": {"schedule": "* * * * *", "jobTemplate": job(template=template())}},
        "weekday 7": {"spec": {"schedule": "0 0 * * 7", "jobTemplate": job()}},
        "bad interval": {"spec": {"schedule": "@every soon", "jobTemplate": job()}},
        "bad descriptor": {"spec": {"schedule": "@noon", "jobTemplate": job()}},
        "time zone in the schedule": {"spec": {"schedule": "TZ=UTC * * * * *", "jobTemplate": job()}},
        "empty time zone": {"spec": {"schedule": "* * * * *", "timeZone": "", "jobTemplate": job()}},
        "local time zone": {"spec": {"schedule": "* * * * *", "timeZone": "Local", "jobTemplate": job()}},
        "time zone with dots": {"spec": {"schedule": "* * * * *", "timeZone": "../UTC", "jobTemplate": job()}},
    },
}

OTHERS: dict[tuple[str, str], dict[str, Obj]] = {
    ("v1", "services"): {
        "no ports": {"spec": {"selector": {"a": "b"}}},
        "bad name": {"metadata": {"name": "1a"}, **service()},
        "port out of range": service(ports=[{"port": 70000}]),
        "two ports without names": service(ports=[{"port": 80}, {"port": 81}]),
        "two ports of one name": service(ports=[{"port": 80, "name": "x"}, {"port": 81, "name": "x"}]),
        "two equal ports": service(ports=[{"port": 80, "name": "x"}, {"port": 80, "name": "y"}]),
        "bad protocol": service(ports=[{"port": 80, "protocol": "X"}]),
        "bad target port": service(ports=[{"port": 80, "targetPort": "Not_A_Port"}]),
        "bad type": service(type="X"),
        "bad affinity": service(sessionAffinity="X"),
        "bad address": service(clusterIP="x"),
        "external name without name": {"spec": {"type": "ExternalName"}},
        "bad selector": service(selector={"a b": "c"}),
        "node port on a cluster address": service(ports=[{"port": 80, "nodePort": 30000}]),
        "node port out of range": service(type="NodePort", ports=[{"port": 80, "nodePort": 80}]),
    },
    ("v1", "configmaps"): {
        "bad key": {"data": {"a/b": "c"}},
        "key in both": {"data": {"a": "b"}, "binaryData": {"a": "Yg=="}},
        "too large": {"data": {"a": "x" * 1048577}},
    },
    ("v1", "secrets"): {
        "bad key": {"data": {"a/b": "Yw=="}},
        "docker config that is none": {"type": "kubernetes.io/dockerconfigjson", "data": {}},
        "tls without key": {"type": "kubernetes.io/tls", "data": {"tls.crt": "Yw=="}},
        "basic auth without user": {"type": "kubernetes.io/basic-auth"},
    },
    ("v1", "namespaces"): {"bad name": {"metadata": {"name": "a.b"}}, "long name": {"metadata": {"name": "a" * 64}}},
    ("v1", "nodes"): {
        "bad taint effect": {"spec": {"taints": [{"key": "a", "effect": "X"}]}},
        "taint without key": {"spec": {"taints": [{"key": "", "effect": "NoSchedule"}]}},
        "two equal taints": {
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}
        },
    },
    ("v1", "persistentvolumeclaims"): {
        "no modes": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}},
        "bad mode": {"spec": {"accessModes": ["X"], "resources": {"requests": {"storage": "1Gi"}}}},
        "no size": {"spec": {"accessModes": ["ReadWriteOnce"]}},
        "size zero": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0"}}}},
    },
    ("v1", "serviceaccounts"): {"bad name": {"metadata": {"name": "A"}}},
    ("v1", "resourcequotas"): {
        "bad name": {"spec": {"hard": {"foo": "1"}}},
        "negative": {"spec": {"hard": {"pods": "-1"}}},
    },
    ("v1", "limitranges"): {
        "min above max": {"spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}}
    },
    ("coordination.k8s.io/v1", "leases"): {
        "zero duration": {"spec": {"leaseDurationSeconds": 0}},
        "negative transitions": {"spec": {"leaseTransitions": -1}},
    },
    ("policy/v1", "poddisruptionbudgets"): {
        "both": {"spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": SELECTOR}},
        "negative": {"spec": {"minAvailable": -1, "selector": SELECTOR}},
        "bad percentage": {"spec": {"maxUnavailable": "x", "selector": SELECTOR}},
    },
    ("scheduling.k8s.io/v1", "priorityclasses"): {
        "too high": {"value": 2000000000},
        "bad policy": {"value": 1, "preemptionPolicy": "X"},
        "system name": {"metadata": {"name": "system-foo"}, "value": 1},
    },
    ("rbac.authorization.k8s.io/v1", "roles"): {
        "no verbs": {"rules": [{"apiGroups": [""], "resources": ["pods"]}]},
        "no groups": {"rules": [{"resources": ["pods"], "verbs": ["get"]}]},
        "no resources": {"rules": [{"apiGroups": [""], "verbs": ["get"]}]},
        "urls": {"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]},
    },
    ("rbac.authorization.k8s.io/v1", "rolebindings"): {
        "bad kind of role": {"roleRef": {"kind": "X", "name": "x"}},
        "no role": {"roleRef": {"kind": "Role", "name": ""}},
        "bad subject": {"roleRef": {"kind": "Role", "name": "x"}, "subjects": [{"kind": "X", "name": "x"}]},
        "account without namespace": {
            "roleRef": {"kind": "Role", "name": "x"},
            "subjects": [{"kind": "ServiceAccount", "name": "x"}],
        },
    },
    ("storage.k8s.io/v1", "storageclasses"): {
        "no provisioner": {},
        "bad mode": {"provisioner": "x", "volumeBindingMode": "X"},
    },
    ("node.k8s.io/v1", "runtimeclasses"): {"no handler": {}, "bad handler": {"handler": "A_b"}},
    ("discovery.k8s.io/v1", "endpointslices"): {
        "bad type": {"addressType": "X", "endpoints": []},
        "bad address": {"addressType": "IPv4", "endpoints": [{"addresses": ["x"]}]},
        "no address": {"addressType": "IPv4", "endpoints": [{"addresses": []}]},
    },
    ("v1", "events"): {
        "other namespace": {
            "involvedObject": {"kind": "Pod", "name": "x", "namespace": "elsewhere"},
            "reason": "R",
            "type": "Normal",
        }
    },
    ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"): {
        "bad name": webhook(name="a"),
        "no versions": webhook(admissionReviewVersions=None),
        "unknown version": webhook(admissionReviewVersions=["v7"]),
        "no side effects": webhook(sideEffects=None),
        "some side effects": webhook(sideEffects="Some"),
        "no client": webhook(clientConfig={}),
        "service and url": webhook(
            clientConfig={"url": "https://127.0.0.1:1/x", "service": {"name": "s", "namespace": "n"}}
        ),
        "http": webhook(clientConfig={"url": "http://127.0.0.1:1/x"}),
        "service without name": webhook(clientConfig={"service": {"namespace": "n", "name": ""}}),
        "service with a bad port": webhook(clientConfig={"service": {"namespace": "n", "name": "s", "port": 0}}),
        "service with a bad path": webhook(clientConfig={"service": {"namespace": "n", "name": "s", "path": "/a=b/c"}}),
        "service with a relative path": webhook(
            clientConfig={"service": {"namespace": "n", "name": "s", "path": "a//b"}}
        ),
        "bad failure policy": webhook(failurePolicy="X"),
        "bad match policy": webhook(matchPolicy="X"),
        "bad timeout": webhook(timeoutSeconds=31),
        "rule without operations": webhook(rules=[{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]),
        "rule without resources": webhook(rules=[{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"]}]),
        "bad scope": webhook(
            rules=[{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"], "scope": "X"}]
        ),
        "bad reinvocation": webhook(reinvocationPolicy="X"),
        "bad bundle": webhook(clientConfig={"url": "https://127.0.0.1:1/x", "caBundle": "AAAA"}),
        "condition without name": webhook(matchConditions=[{"expression": "true"}]),
        "condition without expression": webhook(matchConditions=[{"name": "x"}]),
        "condition with an unknown name": webhook(matchConditions=[{"name": "x", "expression": "foo.bar == 1"}]),
        "condition that is no bool": webhook(matchConditions=[{"name": "x", "expression": "1 + 1"}]),
        "condition with bad syntax": webhook(matchConditions=[{"name": "x", "expression": "object.spec."}]),
        "two conditions of one name": webhook(
            matchConditions=[{"name": "x", "expression": "true"}, {"name": "x", "expression": "true"}]
        ),
    },
}


def created() -> dict[str, tuple[str, str, Obj]]:
    """Case name to API version, plural and the object that is to be created."""
    found = {f"pods: {name}": ("v1", "pods", obj) for name, obj in PODS.items()}
    for (version, plural), cases in (WORKLOADS | OTHERS).items():
        found |= {f"{plural}: {name}": (version, plural, obj) for name, obj in cases.items()}
    return found


# API version, plural, the object as it is, and a strategic merge patch.
Update = tuple[str, str, Obj, Obj]


def patched(**fields: Any) -> Obj:
    return {"spec": {"containers": [{"name": "c", **fields}]}}


UPDATES: dict[str, Update] = {
    "pods: image": ("v1", "pods", pod(), patched(image="j")),
    "pods: command": ("v1", "pods", pod(), patched(command=["x"])),
    "pods: node": ("v1", "pods", pod(), {"spec": {"nodeName": "n1"}}),
    "pods: added container": ("v1", "pods", pod(), {"spec": {"containers": [{"name": "d", "image": "i"}]}}),
    "pods: added gate": ("v1", "pods", pod(), {"spec": {"schedulingGates": [{"name": "a/b"}]}}),
    "pods: removed gate": (
        "v1",
        "pods",
        pod(schedulingGates=[{"name": "a/b"}]),
        {"spec": {"schedulingGates": [{"$patch": "delete", "name": "a/b"}]}},
    ),
    "pods: selector behind a gate": (
        "v1",
        "pods",
        pod(schedulingGates=[{"name": "a/b"}]),
        {"spec": {"nodeSelector": {"a": "b"}}},
    ),
    "pods: selector": ("v1", "pods", pod(), {"spec": {"nodeSelector": {"a": "b"}}}),
    "pods: limits": ("v1", "pods", limited({"cpu": "1"}), patched(resources={"limits": {"cpu": "2"}})),
    "pods: deadline": ("v1", "pods", pod(), {"spec": {"activeDeadlineSeconds": 9}}),
    "pods: longer deadline": ("v1", "pods", pod(activeDeadlineSeconds=5), {"spec": {"activeDeadlineSeconds": 9}}),
    "pods: label": ("v1", "pods", pod(), {"metadata": {"labels": {"a": "b"}}}),
    "pods: bad label": ("v1", "pods", pod(), {"metadata": {"labels": {"a": "b c"}}}),
    "deployments: selector": (
        "apps/v1",
        "deployments",
        workload(),
        {"spec": {"selector": {"matchLabels": {"a": "c"}}, "template": {"metadata": {"labels": {"a": "c"}}}}},
    ),
    "deployments: replicas": ("apps/v1", "deployments", workload(), {"spec": {"replicas": 3}}),
    "deployments: negative replicas": ("apps/v1", "deployments", workload(), {"spec": {"replicas": -3}}),
    "replicasets: selector": (
        "apps/v1",
        "replicasets",
        workload(),
        {"spec": {"selector": {"matchLabels": {"a": "c"}}, "template": {"metadata": {"labels": {"a": "c"}}}}},
    ),
    "daemonsets: selector": (
        "apps/v1",
        "daemonsets",
        workload(),
        {"spec": {"selector": {"matchLabels": {"a": "c"}}, "template": {"metadata": {"labels": {"a": "c"}}}}},
    ),
    "statefulsets: service": ("apps/v1", "statefulsets", workload(serviceName="s"), {"spec": {"serviceName": "t"}}),
    "statefulsets: replicas": ("apps/v1", "statefulsets", workload(), {"spec": {"replicas": 3}}),
    "jobs: template": ("batch/v1", "jobs", job(), {"spec": {"template": patched(image="j")}}),
    "jobs: parallelism": ("batch/v1", "jobs", job(), {"spec": {"parallelism": 3}}),
    "jobs: completions": ("batch/v1", "jobs", job(), {"spec": {"completions": 3}}),
    "jobs: suspension": ("batch/v1", "jobs", job(), {"spec": {"suspend": True}}),
    "jobs: template while suspended": (
        "batch/v1",
        "jobs",
        job(suspend=True),
        {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
    ),
    "services: address": (
        "v1",
        "services",
        service(),
        {"spec": {"clusterIP": "10.96.0.77", "clusterIPs": ["10.96.0.77"]}},
    ),
    "services: port": ("v1", "services", service(), {"spec": {"ports": [{"port": 81, "name": "x"}]}}),
    "services: selector": ("v1", "services", service(), {"spec": {"selector": {"a": "c"}}}),
    "configmaps: immutable": ("v1", "configmaps", {"immutable": True, "data": {"a": "b"}}, {"data": {"a": "c"}}),
    "configmaps: mutable again": ("v1", "configmaps", {"immutable": True}, {"immutable": False}),
    "secrets: type": ("v1", "secrets", {"type": "a/b"}, {"type": "a/c"}),
    "priorityclasses: value": ("scheduling.k8s.io/v1", "priorityclasses", {"value": 1}, {"value": 2}),
    "rolebindings: role": (
        "rbac.authorization.k8s.io/v1",
        "rolebindings",
        {"roleRef": {"kind": "ClusterRole", "name": "view"}},
        {"roleRef": {"kind": "ClusterRole", "name": "edit"}},
    ),
    "persistentvolumeclaims: mode": (
        "v1",
        "persistentvolumeclaims",
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}},
        {"spec": {"accessModes": ["ReadWriteMany"]}},
    ),
    "runtimeclasses: handler": ("node.k8s.io/v1", "runtimeclasses", {"handler": "a"}, {"handler": "b"}),
    "storageclasses: provisioner": ("storage.k8s.io/v1", "storageclasses", {"provisioner": "a"}, {"provisioner": "b"}),
    "nodes: unschedulable": ("v1", "nodes", {}, {"spec": {"unschedulable": True}}),
    "nodes: bad taint": ("v1", "nodes", {}, {"spec": {"taints": [{"key": "a", "effect": "X"}]}}),
    "leases: holder": ("coordination.k8s.io/v1", "leases", {}, {"spec": {"holderIdentity": "me"}}),
    "poddisruptionbudgets: minimum": (
        "policy/v1",
        "poddisruptionbudgets",
        {"spec": {"minAvailable": 1, "selector": SELECTOR}},
        {"spec": {"minAvailable": 2}},
    ),
}
