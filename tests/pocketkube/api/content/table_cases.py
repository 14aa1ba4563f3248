"""Objects in the states that `kubectl get` tells apart; `tables.json` holds what a real server prints of them."""

from __future__ import annotations

from typing import Any

from tests.pocketkube.api.content.accepted import SELECTOR, container, template, workload

Obj = dict[str, Any]
Case = tuple[str, str, Obj, Obj]
"""API version, plural, the object and the status that it is in."""

THEN = "2024-01-01T00:00:00Z"
LATER = "2024-01-01T01:00:00Z"


def pod(status: Obj, **spec: Any) -> Case:
    return ("v1", "pods", {"spec": {"containers": container(), **spec}}, status)


def state(name: str, now: Obj, *, ready: bool = False, restarts: int = 0, **more: Any) -> Obj:
    return {"name": name, "state": now, "ready": ready, "restartCount": restarts, "image": "i", "imageID": "", **more}


RUNNING: Obj = {"running": {"startedAt": THEN}}
DONE: Obj = {"terminated": {"exitCode": 0, "reason": "Completed"}}
BEFORE: Obj = {"terminated": {"exitCode": 1, "finishedAt": LATER}}
TWO: list[Obj] = [{"name": "i1", "image": "i"}, {"name": "i2", "image": "i"}]
SIDECAR: list[Obj] = [{"name": "s", "image": "i", "restartPolicy": "Always"}]


def true(*types: str) -> list[Obj]:
    return [{"type": each, "status": "True", "lastTransitionTime": THEN} for each in types]


CASES: dict[str, Case] = {
    "pod running": pod(
        {
            "phase": "Running",
            "conditions": true("Ready"),
            "containerStatuses": [state("c", RUNNING, ready=True, restarts=3, lastState=BEFORE)],
            "podIP": "10.1.1.1",
            "podIPs": [{"ip": "10.1.1.1"}],
        }
    ),
    "pod waiting for its image": pod(
        {"phase": "Pending", "containerStatuses": [state("c", {"waiting": {"reason": "ImagePullBackOff"}})]}
    ),
    "pod succeeded": pod({"phase": "Succeeded", "containerStatuses": [state("c", DONE)]}),
    "pod refused by its kubelet": pod({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "x"}),
    "pod with an exit code": pod(
        {"phase": "Failed", "containerStatuses": [state("c", {"terminated": {"exitCode": 3}})]}
    ),
    "pod with a signal": pod(
        {"phase": "Failed", "containerStatuses": [state("c", {"terminated": {"exitCode": 137, "signal": 9}})]}
    ),
    "pod in its second init container": pod(
        {
            "phase": "Pending",
            "initContainerStatuses": [state("i1", DONE), state("i2", RUNNING)],
            "containerStatuses": [state("c", {"waiting": {"reason": "PodInitializing"}})],
        },
        initContainers=TWO,
    ),
    "pod whose init container failed": pod(
        {
            "phase": "Pending",
            "initContainerStatuses": [state("i1", {"terminated": {"exitCode": 2, "reason": "Error"}}, restarts=2)],
        },
        initContainers=TWO,
    ),
    "pod whose init container backs off": pod(
        {
            "phase": "Pending",
            "initContainerStatuses": [state("i1", {"waiting": {"reason": "CrashLoopBackOff"}}, restarts=2)],
        },
        initContainers=TWO,
    ),
    "pod with a sidecar": pod(
        {
            "phase": "Running",
            "conditions": true("Initialized", "Ready"),
            "initContainerStatuses": [state("s", RUNNING, ready=True, restarts=1, started=True)],
            "containerStatuses": [state("c", RUNNING, ready=True)],
        },
        initContainers=SIDECAR,
    ),
    "pod that is half done": pod(
        {
            "phase": "Running",
            "conditions": true("x/y"),
            "containerStatuses": [state("c", DONE), state("d", RUNNING, ready=True)],
            "nominatedNodeName": "n9",
        },
        containers=[*container(), {"name": "d", "image": "i"}],
        readinessGates=[{"conditionType": "x/y"}, {"conditionType": "x/z"}],
    ),
    "deployment on its way": (
        "apps/v1",
        "deployments",
        workload(replicas=2),
        {"replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1},
    ),
    "replica set": ("apps/v1", "replicasets", workload(replicas=2), {"replicas": 2, "readyReplicas": 1}),
    "stateful set": ("apps/v1", "statefulsets", workload(), {"replicas": 1, "readyReplicas": 1}),
    "daemon set": (
        "apps/v1",
        "daemonsets",
        workload(template=template(nodeSelector={"a": "b"})),
        {
            "desiredNumberScheduled": 3,
            "currentNumberScheduled": 2,
            "numberReady": 1,
            "numberMisscheduled": 0,
            "updatedNumberScheduled": 2,
            "numberAvailable": 1,
        },
    ),
    "job at work": (
        "batch/v1",
        "jobs",
        {"spec": {"parallelism": 2, "template": template(restartPolicy="Never")}},
        {"active": 1, "startTime": THEN},
    ),
    "suspended job": (
        "batch/v1",
        "jobs",
        {"spec": {"suspend": True, "template": template(restartPolicy="Never")}},
        {"conditions": true("Suspended")},
    ),
    "node": (
        "v1",
        "nodes",
        {
            "metadata": {"labels": {"node-role.kubernetes.io/gpu": "", "kubernetes.io/role": "x"}},
            "spec": {"unschedulable": True},
        },
        {
            "conditions": true("Ready"),
            "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
            "nodeInfo": {"kubeletVersion": "v1.34.4", "osImage": "Some Linux"},
        },
    ),
    "node that is not ready": ("v1", "nodes", {}, {"conditions": [{"type": "Ready", "status": "Unknown"}]}),
    "disruption budget": (
        "policy/v1",
        "poddisruptionbudgets",
        {"spec": {"maxUnavailable": "20%", "selector": SELECTOR}},
        {"disruptionsAllowed": 2, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    ),
    "quota": (
        "v1",
        "resourcequotas",
        {"spec": {"hard": {"pods": "10", "limits.cpu": "4"}}},
        {"hard": {"pods": "10", "limits.cpu": "4"}, "used": {"pods": "1", "limits.cpu": "500m"}},
    ),
    "claim": (
        "v1",
        "persistentvolumeclaims",
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "volumeName": "v",
                "resources": {"requests": {"storage": "1Gi"}},
            }
        },
        {"phase": "Bound", "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "capacity": {"storage": "1Gi"}},
    ),
}
EVENTS: dict[str, tuple[str, str, Obj]] = {
    "event": (
        "v1",
        "events",
        {
            "involvedObject": {"kind": "Pod", "name": "x", "namespace": "refused", "fieldPath": "spec.containers{c}"},
            "reason": "R",
            "message": " m ",
            "type": "Normal",
            "count": 3,
            "source": {"component": "c", "host": "h"},
            "firstTimestamp": THEN,
            "lastTimestamp": LATER,
        },
    ),
    "new event": (
        "events.k8s.io/v1",
        "events",
        {
            "regarding": {"kind": "Pod", "name": "x", "namespace": "refused"},
            "reason": "R",
            "note": "m",
            "type": "Normal",
            "eventTime": "2024-01-01T00:00:00.123456Z",
            "action": "A",
            "reportingController": "c/x",
            "reportingInstance": "i",
        },
    ),
}
