"""Chapters about deletion and about nodes without a kubelet: cascades, grace, waiting, scaling, cordon, taint."""

from __future__ import annotations

from tests.kubectl import samples
from tests.kubectl.session import KubectlSession


def delete_by_name_selector_and_file(tell: KubectlSession) -> None:
    tell.apply(*(samples.config_map(name) for name in ("a", "b", "c")))
    tell("delete", "configmap", "a")
    tell("delete", "configmap", "a", fails=True)
    tell("delete", "configmap", "a", "--ignore-not-found")
    tell("label", "configmap", "b", "go=yes")
    tell("delete", "configmaps", "-l", "go=yes", "--dry-run=server")
    tell("delete", "configmaps", "-l", "go=yes")
    tell("delete", "configmap/c", "-o", "name")
    tell.apply(samples.config_map("held") | {"metadata": {"name": "held", "finalizers": ["example.io/hold"]}})
    tell("delete", "configmap", "held", "--wait=false")
    tell("wait", "--for=delete", "configmap/held", "--timeout=1s", fails=True)
    tell("patch", "configmap", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    tell("wait", "--for=delete", "configmap/held", "--timeout=10s")
    tell.apply(samples.pod("pending"))
    tell("delete", "pod", "pending")
    tell.apply(samples.pod("forced"))
    tell("delete", "pod", "forced", "--grace-period=0", "--force")
    tell("delete", "all", "--all")
    tell("get", "all")


def delete_cascades(tell: KubectlSession) -> None:
    for name in ("orphans", "foreground", "background"):
        tell.apply(samples.deployment(name, replicas=1))
    tell.until(("get", "pods", "-o", "name"), lambda said: said.count("pod/") == 3)
    tell("delete", "deployment", "orphans", "--cascade=orphan")
    left = tell.until(
        ("get", "replicasets", "-l", "app=orphans", "-o", "jsonpath={.items[*].metadata.ownerReferences}"),
        lambda said: not said,
    )
    assert not left
    assert "replicaset" in tell.aside("get", "replicasets", "-l", "app=orphans", "-o", "name")
    tell("delete", "replicasets", "-l", "app=orphans", "--cascade=foreground")
    tell("get", "pods", "-l", "app=orphans")
    tell("delete", "deployment", "foreground", "--cascade=foreground")
    tell("get", "replicasets,pods", "-l", "app=foreground")
    tell("delete", "deployment", "background")
    tell.until(("get", "replicasets,pods"), lambda said: said.startswith("No resources"))


def scale_and_roll_without_nodes(tell: KubectlSession) -> None:
    tell.apply(samples.deployment("web", replicas=1))
    tell.until(("get", "deployment", "web"), lambda said: "0/1     1" in said)
    tell("scale", "deployment/web", "--replicas=3")
    tell("scale", "deployment/web", "--replicas=2", "--current-replicas=1", fails=True)
    tell.until(("get", "replicasets"), lambda said: "3         3" in said)
    tell("rollout", "status", "deployment/web", "--watch=false")
    tell("rollout", "status", "deployment/web", "--timeout=1s", fails=True)
    tell("rollout", "pause", "deployment/web")
    tell("rollout", "resume", "deployment/web")
    tell("rollout", "restart", "deployment/web")
    tell.until(("rollout", "history", "deployment/web"), lambda said: "2 " in said)
    tell("rollout", "undo", "deployment/web")
    tell.until(("rollout", "history", "deployment/web"), lambda said: "3 " in said)
    tell("wait", "--for=condition=Available", "deployment/web", "--timeout=1s", fails=True)
    tell("wait", "--for=jsonpath={.spec.replicas}=3", "deployment/web")
    tell("wait", "--for=create", "deployment/web")


def nodes_are_objects_too(tell: KubectlSession) -> None:
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: kubectl-node}\n"
    try:
        tell("create", "-f", "-", input=node)
        # The controllers of nodes write here at any time, so this compares what the commands say.
        tell("cordon", "kubectl-node")
        tell("cordon", "kubectl-node")
        tell("get", "node", "kubectl-node", "-o", "jsonpath={.spec.unschedulable}")
        tell("taint", "node", "kubectl-node", "key=value:NoSchedule")
        tell("taint", "node", "kubectl-node", "key=value:NoSchedule", fails=True)
        tell("taint", "node", "kubectl-node", "key=other:NoSchedule", "--overwrite")
        tell("get", "node", "kubectl-node", "-o", 'jsonpath={.spec.taints[?(@.key=="key")]}')
        tell("taint", "node", "kubectl-node", "key-")
        tell("taint", "node", "kubectl-node", "key-", fails=True)
        tell("taint", "node", "kubectl-node", "key=value:Sometimes", fails=True)
        tell("uncordon", "kubectl-node")
        tell("uncordon", "kubectl-node")
        tell("label", "node", "kubectl-node", "zone=a")
        tell("get", "nodes", "-l", "zone=a", "-o", "name")
        tell("drain", "kubectl-node")
        tell("uncordon", "kubectl-node")
    finally:
        tell.aside("delete", "node", "kubectl-node", "--ignore-not-found")
