"""Chapters that look: tables, formats, selectors, descriptions, explanations, discovery."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable

from tests.kubectl import samples
from tests.kubectl.session import NAMESPACE, KubectlSession


def get_prints_tables_and_formats(tell: KubectlSession) -> None:
    tell.apply(
        samples.pod("one", labels={"app": "web", "tier": "front"}),
        samples.pod("two", labels={"app": "web", "tier": "back"}),
        samples.pod("three", labels={"app": "db"}),
    )
    pending = tell.until(("get", "pods"), lambda said: said.count("Pending") == 3)
    assert pending.splitlines()[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    tell("get", "pods", "-o", "wide")
    tell("get", "pods", "--show-labels")
    tell("get", "pods", "-L", "tier")
    tell("get", "pods", "--no-headers")
    tell("get", "pods", "-o", "name")
    tell("get", "pod", "one", "-o", "jsonpath={.spec.containers[*].image} {.metadata.labels.app}")
    tell("get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name}={.status.phase};{end}")
    tell("get", "pods", "-o", "custom-columns=NAME:.metadata.name,TIER:.metadata.labels.tier")
    tell("get", "pods", "-o", "go-template={{range .items}}{{.metadata.name}} {{end}}")
    assert json.loads(tell.aside("get", "pods", "-o", "json"))["kind"] == "List"
    tell("get", "pods", "--sort-by=.metadata.name")
    tell("get", "pods", "--sort-by=.metadata.name", "-o", "name")
    tell("get", "pods,serviceaccounts")
    tell("get", "pods/one", "serviceaccounts/default")
    tell("get", "pods", "-A", "-o", "custom-columns=NS:.metadata.namespace", "-l", "app=web")
    tell("get", "pods", "absent", fails=True)
    tell("get", "pods", "absent", "--ignore-not-found")
    tell("get", "unheard-of-things", fails=True)
    tell("get", "secrets")
    tell("get", "namespace", NAMESPACE)


def get_prints_whole_objects(tell: KubectlSession) -> None:
    tell.apply(samples.config_map("settings", colour="red"), samples.service("web"))
    tell.apply(samples.pod("whole", "sh", "-c", "sleep 5"))
    tell.until(("get", "pod", "whole"), lambda said: "Pending" in said)
    tell.until(("get", "pod", "whole", "-o", "jsonpath={.status.conditions[0].reason}"), bool)
    tell("get", "configmap", "settings", "-o", "yaml")
    tell("get", "configmap", "settings", "-o", "json")
    tell("get", "pod", "whole", "-o", "yaml")
    tell("get", "configmap", "settings", "-o", "yaml", "--show-managed-fields")
    tell("get", "service", "web", "-o", "yaml")
    raw = tell.aside("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/configmaps/settings")
    assert json.loads(raw)["data"] == {"colour": "red"}
    tell("get", "--raw", "/api/v1/namespaces/absent", fails=True)


def get_selects(tell: KubectlSession) -> None:
    maps = [samples.config_map(name, key="value") for name in ("a", "b", "c")]
    for labelled, team in zip(maps, ("red", "blue", "red"), strict=True):
        labelled["metadata"]["labels"] = {"team": team}
    maps[0]["metadata"]["labels"]["spare"] = "yes"
    tell.apply(*maps)
    for selector in ("team=red", "team!=red", "team in (red,blue),spare", "!spare", "team notin (red)", "team==blue"):
        tell("get", "configmaps", "-l", selector)
    tell("get", "configmaps", "--field-selector", "metadata.name=b")
    tell("get", "configmaps", "--field-selector", "metadata.name!=b,metadata.name!=a")
    tell("get", "configmaps", "--field-selector", "data.key=value", fails=True)
    tell("get", "configmaps", "-l", "team in red", fails=True)
    tell("get", "configmaps", "--chunk-size=2", "-o", "name")


def get_watches(tell: KubectlSession) -> None:
    with tell.following("get", "configmaps", "-w", "--field-selector", "metadata.name!=kube-root-ca.crt") as shown:
        tell("create", "configmap", "seen", "--from-literal=a=1")
        shown("seen   1")
    with tell.following("get", "configmap", "seen", "-w", "--output-watch-events") as shown:
        shown("ADDED")
        tell("label", "configmap", "seen", "colour=red")
        shown("MODIFIED")
        tell("delete", "configmap", "seen")
        shown("DELETED")
    with tell.following("get", "configmaps", "-A", "--watch-only", "-o", "name") as shown:
        # Its start cannot be seen from outside: write until it has noticed.
        shown("configmap/again", meanwhile=lambda: tell.aside("create", "configmap", f"again-{secrets.token_hex(4)}"))


def describe_tells_the_whole_story(tell: KubectlSession) -> None:
    tell.apply(samples.deployment("web"), samples.service("web"), samples.job("once", "true", backoffLimit=2))
    tell.until(("get", "pods", "-o", "jsonpath={.items[*].status.conditions[0].reason}"), _unschedulable(3))
    tell.until(("get", "deployments", "-o", "wide"), lambda said: "0/2     2" in said)
    tell.until(("get", "jobs", "-o", "wide"), lambda said: "0/1" in said)
    tell("get", "replicasets", "-o", "wide")
    tell("get", "services,endpointslices")
    tell("get", "all")
    tell.until(("describe", "deployment", "web"), lambda said: "ScalingReplicaSet" in said)
    tell.until(("describe", "replicaset"), lambda said: said.count("SuccessfulCreate") == 2)
    tell.until(("describe", "job", "once"), lambda said: "SuccessfulCreate" in said)
    said = tell.until(("describe", "pods", "-l", "app=web"), lambda said: said.count("FailedScheduling") >= 2)
    assert "no nodes available to schedule pods" in said
    tell("describe", "service", "web")
    tell("describe", "serviceaccount", "default")
    tell("describe", "namespace", NAMESPACE)
    tell("describe", "configmap", "absent", fails=True)
    columns = "custom-columns=REASON:.reason,KIND:.involvedObject.kind,TYPE:.type,MESSAGE:.message"
    tell("get", "events", "-o", columns, "--sort-by=.reason")
    tell("get", "events", "--field-selector", "involvedObject.kind=Deployment,reason=ScalingReplicaSet")
    tell("events", "--for", "job/once", "--types=Warning")


def discovery_and_documentation_answer(tell: KubectlSession) -> None:
    tell("api-resources", "--namespaced", "--api-group=apps")
    tell("api-resources", "--api-group=batch", "-o", "wide")
    tell("api-resources", "--api-group=", "--namespaced", "--sort-by=name")
    for kind in ("pods", "deployments.apps", "jobs", "pv"):
        assert "KIND:" in tell("explain", kind)
    tell("explain", "unheard-of-things", fails=True)
    tell("explain", "pod.spec.containers.resources", "--recursive")
    tell("explain", "deployment.spec", "--recursive")
    tell("explain", "service.spec.ports.port")
    tell("explain", "pod.spec.absent", fails=True)
    tell("explain", "pdb.status.currentHealthy", "--api-version=policy/v1")
    tell("auth", "can-i", "create", "pods")
    tell("auth", "can-i", "delete", "nodes", "--as=nobody", fails=True)
    tell("auth", "can-i", "get", "pods", f"--as=system:serviceaccount:{NAMESPACE}:default", fails=True)
    tell("auth", "can-i", "--list", f"--as=system:serviceaccount:{NAMESPACE}:default")
    tell("get", "pods", "--as=nobody", fails=True)
    tell("create", "role", "reader", "--verb=get,list", "--resource=pods")
    tell("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={NAMESPACE}:default")
    account = f"--as=system:serviceaccount:{NAMESPACE}:default"
    tell.until(("auth", "can-i", "list", "pods", account), lambda said: said.startswith("yes"))
    tell("get", "pods", account)
    tell("get", "roles,rolebindings", "-o", "wide")
    tell("get", "--raw", "/readyz")
    tell("get", "--raw", "/livez")
    tell("cluster-info", "--request-timeout=5s")
    assert json.loads(tell.aside("version", "-o", "json"))["serverVersion"]["minor"] == "34"


def _unschedulable(count: int) -> Callable[[str], bool]:
    return lambda said: said.split().count("Unschedulable") == count
