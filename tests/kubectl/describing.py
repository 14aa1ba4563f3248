"""A chapter on the small kinds: made by kubectl's generators, shown and described, refused where they are wrong."""

from __future__ import annotations

from typing import Any

import yaml

from tests.kubectl import samples
from tests.kubectl.session import KubectlSession


def small_kinds_are_made_and_described(tell: KubectlSession) -> None:
    tell.apply(samples.deployment("web", replicas=0), samples.config_map("settings", a="b"))
    tell("create", "secret", "generic", "word", "--from-literal=a=b")
    tell("create", "role", "reader", "--verb=get", "--resource=pods")
    tell("create", "rolebinding", "reads", "--role=reader", "--user=ann")
    tell("create", "ingress", "way", "--rule=example.org/path=web:80")
    tell("create", "serviceaccount", "robot")
    tell("expose", "deployment", "web")
    tell("autoscale", "deployment", "web", "--max=3")
    tell("set", "resources", "deployment/web", "-c=main", "--limits=memory=1Gi")
    tell("get", "deploy,secret,role,rolebinding,ingress,svc,hpa", "-o", "name")
    for kind in ("configmap/settings", "secret/word", "role/reader", "rolebinding/reads"):
        tell("describe", kind)
    tell("describe", "ingress", "way")
    overrides = '{"spec":{"schedulerName":"nobody"}}'
    tell("run", "alone", f"--image={samples.IMAGE}", "--labels=a=b", f"--overrides={overrides}")
    tell("get", "pod", "alone", "-o", "custom-columns=N:.metadata.name,I:.spec.containers[*].image")
    tell("auth", "can-i", "get", "pods", "--as=ann")
    tell("auth", "can-i", "--list", "--as=ann")
    tell("auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}")
    tell("explain", "configmap", "--recursive")
    tell("delete", "pod", "alone", "--grace-period=0", "--force")
    tell("delete", "deployments,services,ingresses,hpa", "--all")


def manifests_with_mistakes_are_refused(tell: KubectlSession) -> None:
    container = {"name": "c", "image": "i"}
    mistakes: tuple[dict[str, Any], ...] = (
        {"containers": [container | {"foo": 1}], "bar": 2},
        {"containers": [container | {"resources": {"limits": {"nvidia.com/gpu": 0.5}}}]},
        {"containers": [container | {"ports": [{"containerPort": "x"}]}]},
        {"containers": []},
    )
    for spec in mistakes:
        tell("create", "-f", "-", input=_pod(spec), fails=True)
        tell("apply", "-f", "-", input=_pod(spec), fails=True)
    unknown = _pod({"containers": [container], "bar": 2})
    tell("create", "--validate=warn", "--dry-run=server", "-f", "-", input=unknown)
    tell("create", "--validate=ignore", "--dry-run=server", "-f", "-", input=unknown)
    tell("get", "deployments", "--field-selector=spec.nothing=web", "-o", "name", fails=True)
    tell("get", "configmaps", "-l", "bad==selector==x", fails=True)


def _pod(spec: dict[str, Any]) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": spec})
