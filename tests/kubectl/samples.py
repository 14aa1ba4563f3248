"""Objects that the chapters write."""

from __future__ import annotations

from typing import Any

from tests.builders import pods

Json = dict[str, Any]


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str, *command: str, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    main = pods.container(command=list(command or ("sleep", "100000")))
    spec = {"terminationGracePeriodSeconds": 1, "containers": [main], **spec}
    return pods.pod(name, namespace="", labels=labels or {"app": name}, **spec)


def deployment(name: str, *, replicas: int = 2, **spec: Any) -> Json:
    labels = {"app": name}
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sleep", "100000"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": "16Mi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
            },
            **spec,
        },
    }


def service(name: str, **spec: Any) -> Json:
    port = {"name": "http", "port": 80, "targetPort": "http"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [port], **spec},
    }


def job(name: str, *command: str, **spec: Any) -> Json:
    container = {"name": "main", "image": IMAGE, "command": list(command)}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


def budget(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, **spec},
    }


# Under this name the image of the real node has it too.
IMAGE = pods.IMAGE
