"""Pods that an API server refuses; what is wrong is in the case's name."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]

CONTAINER: Obj = {"name": "c", "image": "i"}
SELECTOR: Obj = {"matchLabels": {"a": "b"}}


def pod(**spec: Any) -> Obj:
    return {"spec": {"containers": [CONTAINER], **spec}}


def containing(**fields: Any) -> Obj:
    return pod(containers=[{**CONTAINER, **fields}])


def limited(limits: Obj | None = None, requests: Obj | None = None) -> Obj:
    resources: Obj = {}
    if limits is not None:
        resources["limits"] = limits
    if requests is not None:
        resources["requests"] = requests
    return containing(resources=resources)


PODS: dict[str, Obj] = {
    "no containers": {"spec": {"containers": []}},
    "no spec": {},
    "no container name": pod(containers=[{"image": "i"}]),
    "bad container name": containing(name="A_b"),
    "long container name": containing(name="a" * 64),
    "two containers of one name": pod(containers=[CONTAINER, CONTAINER]),
    "init container of the same name": pod(initContainers=[CONTAINER]),
    "no image": pod(containers=[{"name": "c"}]),
    "bad pull policy": containing(imagePullPolicy="Sometimes"),
    "bad restart policy": pod(restartPolicy="Maybe"),
    "bad dns policy": pod(dnsPolicy="Maybe"),
    "negative grace": pod(terminationGracePeriodSeconds=-1),
    "zero deadline": pod(activeDeadlineSeconds=0),
    "bad name": {"metadata": {"name": "A_b"}, **pod()},
    "long name": {"metadata": {"name": "a" * 254}, **pod()},
    "no name": {"metadata": {"name": ""}, **pod()},
    "bad label key": {"metadata": {"labels": {"a b": "c"}}, **pod()},
    "bad label value": {"metadata": {"labels": {"a": "b c"}}, **pod()},
    "long label value": {"metadata": {"labels": {"a": "b" * 64}}, **pod()},
    "label with two slashes": {"metadata": {"labels": {"a/b/c": "d"}}, **pod()},
    "label with an empty prefix": {"metadata": {"labels": {"/c": "d"}}, **pod()},
    "label with a bad prefix": {"metadata": {"labels": {"A_/c": "d"}}, **pod()},
    "bad annotation key": {"metadata": {"annotations": {"a b": "c"}}, **pod()},
    "bad finalizer": {"metadata": {"finalizers": ["not qualified"]}, **pod()},
    "owner without uid": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x"}]}, **pod()},
    "limit below request": limited({"cpu": "1"}, {"cpu": "2"}),
    "negative limit": limited({"cpu": "-1"}),
    "extended resource with a fraction": limited({"nvidia.com/gpu": "0.5"}),
    "slice with a fraction": limited({"mig.das.com/1g.5gb": "500m"}),
    "extended resource: requests differ": limited({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 1}),
    "extended resource: only requests": limited(None, {"nvidia.com/gpu": 1}),
    "negative extended resource": limited({"nvidia.com/gpu": -1}),
    "unknown resource": limited({"foo": 1}),
    "bad resource name": limited({"a b/c": 1}),
    "hugepages without cpu": limited({"hugepages-2Mi": "4Mi"}),
    "port out of range": containing(ports=[{"containerPort": 70000}]),
    "port missing": containing(ports=[{"name": "x"}]),
    "bad port name": containing(ports=[{"containerPort": 80, "name": "Not-Allowed-At-All"}]),
    "bad protocol": containing(ports=[{"containerPort": 80, "protocol": "ICMP"}]),
    "two ports of one name": containing(ports=[{"containerPort": 80, "name": "x"}, {"containerPort": 81, "name": "x"}]),
    "two equal host ports": containing(
        ports=[{"containerPort": 80, "hostPort": 1}, {"containerPort": 81, "hostPort": 1}]
    ),
    "env without name": containing(env=[{"value": "x"}]),
    "bad env name": containing(env=[{"name": "a=b", "value": "x"}]),
    "env with value and source": containing(
        env=[{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    ),
    "env from nothing": containing(env=[{"name": "A", "valueFrom": {}}]),
    "env from a bad field": containing(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.foo"}}}]),
    "env from a config map without key": containing(
        env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "x"}}}]
    ),
    "mount of an unknown volume": containing(volumeMounts=[{"name": "v", "mountPath": "/x"}]),
    "mount without path": {
        "spec": {
            "volumes": [{"name": "v"}],
            "containers": [{**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": ""}]}],
        }
    },
    "two mounts at one path": {
        "spec": {
            "volumes": [{"name": "v"}],
            "containers": [
                {**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}]}
            ],
        }
    },
    "volume without name": pod(volumes=[{"emptyDir": {}}]),
    "bad volume name": pod(volumes=[{"name": "A_b", "emptyDir": {}}]),
    "two volumes of one name": pod(volumes=[{"name": "v"}, {"name": "v"}]),
    "volume with two sources": pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
    "host path without path": pod(volumes=[{"name": "v", "hostPath": {"path": ""}}]),
    "host path with dots": pod(volumes=[{"name": "v", "hostPath": {"path": "/a/../b"}}]),
    "host path of a bad type": pod(volumes=[{"name": "v", "hostPath": {"path": "/a", "type": "x"}}]),
    "secret volume without secret": pod(volumes=[{"name": "v", "secret": {}}]),
    "config map volume without name": pod(volumes=[{"name": "v", "configMap": {}}]),
    "claim volume without claim": pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": ""}}]),
    "probe without handler": containing(livenessProbe={"periodSeconds": 5}),
    "probe with two handlers": containing(livenessProbe={"exec": {"command": ["x"]}, "tcpSocket": {"port": 1}}),
    "probe with a negative delay": containing(readinessProbe={"tcpSocket": {"port": 1}, "initialDelaySeconds": -1}),
    "liveness with two successes": containing(livenessProbe={"tcpSocket": {"port": 1}, "successThreshold": 2}),
    "probe of port 0": containing(readinessProbe={"tcpSocket": {"port": 0}}),
    "probe of a bad scheme": containing(readinessProbe={"httpGet": {"port": 1, "scheme": "FTP"}}),
    "probe of an empty command": containing(readinessProbe={"exec": {"command": []}}),
    "toleration without key": pod(tolerations=[{"operator": "Equal", "value": "x"}]),
    "toleration with value and Exists": pod(tolerations=[{"key": "a", "operator": "Exists", "value": "x"}]),
    "toleration with a bad operator": pod(tolerations=[{"key": "a", "operator": "In", "value": "x"}]),
    "toleration with a bad effect": pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "X"}]),
    "toleration with seconds but no effect": pod(
        tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 1}]
    ),
    "bad node selector": pod(nodeSelector={"a b": "c"}),
    "node affinity without terms": pod(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    ),
    "node affinity with a bad operator": pod(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}]
                }
            }
        }
    ),
    "node affinity In without values": pod(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]
                }
            }
        }
    ),
    "node affinity weight out of range": pod(
        affinity={
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 101, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
                ]
            }
        }
    ),
    "pod affinity without topology": pod(
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": SELECTOR, "topologyKey": ""}]
            }
        }
    ),
    "spread without skew": pod(
        topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]
    ),
    "spread with a bad action": pod(
        topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "Maybe"}]
    ),
    "bad gate": pod(schedulingGates=[{"name": "a b"}]),
    "two gates of one name": pod(schedulingGates=[{"name": "a/b"}, {"name": "a/b"}]),
    "bad hostname": pod(hostname="A_b"),
    "bad node name": pod(nodeName="A_b"),
    "bad scheduler name": pod(schedulerName="A_b"),
    "sidecar with a bad policy": pod(initContainers=[{"name": "s", "image": "i", "restartPolicy": "Sometimes"}]),
    "init container with a readiness probe": pod(
        initContainers=[{"name": "s", "image": "i", "readinessProbe": {"tcpSocket": {"port": 1}}}]
    ),
    "privileged without escalation": containing(
        securityContext={"privileged": True, "allowPrivilegeEscalation": False}
    ),
    "negative user": containing(securityContext={"runAsUser": -1}),
    "host ports that differ on the host network": pod(
        hostNetwork=True, containers=[{**CONTAINER, "ports": [{"containerPort": 80, "hostPort": 81}]}]
    ),
    "bad image pull secret": pod(imagePullSecrets=[{"name": ""}]),
    "bad priority class": pod(priorityClassName="no-such-class"),
    "bad runtime class": pod(runtimeClassName="no-such-class"),
    "bad service account": pod(serviceAccountName="no-such-account"),
    "given priority": pod(priority=7),
}
