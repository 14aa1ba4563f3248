"""Chapters that need pods which run: logs, waiting, rollouts, jobs, drain."""

from __future__ import annotations

import yaml

from tests.kubectl import samples
from tests.kubectl.session import KubectlSession

_RESTARTED = "{.status.containerStatuses[0].lastState.terminated.exitCode}"


def logs_are_printed_followed_and_kept(tell: KubectlSession) -> None:
    script = "for word in one two three; do echo $word; sleep 1; done"
    tell.apply(
        samples.pod("speaks", "sh", "-c", f"{script}; sleep 100000"),
        samples.pod("ends", "sh", "-c", f"{script}; echo last", restartPolicy="Never"),
        samples.pod("again", "sh", "-c", "echo life; sleep 1; exit 3"),
    )
    tell("wait", "--for=condition=Ready", "pod/speaks", "--timeout=30s")
    with tell.following("logs", "-f", "speaks") as shown:
        shown("one\ntwo\nthree\n")
    # It ends by itself with the container, whenever it was begun.
    assert tell("logs", "-f", "ends") == "one\ntwo\nthree\nlast\n"
    tell("logs", "ends", "--tail=2")
    tell("logs", "ends", "-c", "main", "--limit-bytes=5")
    stamped = tell("logs", "ends", "--timestamps")
    assert all(line[:2] == "20" for line in stamped.splitlines())
    tell("logs", "-l", "app=ends", "--prefix")
    tell("logs", "ends", "-c", "absent", fails=True)
    tell("logs", "ends", "--previous", fails=True)
    tell("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/ends", "--timeout=30s")
    tell("get", "pod", "ends")
    tell.until(("get", "pod", "again", "-o", f"jsonpath={_RESTARTED}"), bool)
    # Asked until it answers: a kubelet keeps one dead container, so while the present one is dead too there is none.
    tell.until(("logs", "again", "--previous"), lambda said: said == "life\n")
    said = "involvedObject.name=again,reason=BackOff"
    tell.until(("get", "events", "--field-selector", said, "-o", "jsonpath={.items[*].message}"), bool)
    tell("delete", "pod", "again", "ends", "--grace-period=0", "--force")
    tell("delete", "pod", "speaks")


def rollouts_progress(tell: KubectlSession) -> None:
    tell.apply(samples.deployment("web"), samples.service("web"))
    tell.aside("rollout", "status", "deployment/web", "--timeout=60s")
    tell("rollout", "status", "deployment/web")
    tell("wait", "--for=condition=Available", "deployment/web", "--timeout=30s")
    tell.until(("get", "deployment,replicaset,pods"), lambda said: said.count("1/1") == 2)
    tell("scale", "deployment/web", "--replicas=1")
    tell.until(("get", "pods"), lambda said: said.count("web-") == 1)
    tell.until(("get", "endpointslices", "-o", "jsonpath={.items[0].endpoints[*].conditions}"), bool)
    tell("rollout", "restart", "deployment/web")
    tell.aside("rollout", "status", "deployment/web", "--timeout=60s")
    tell.until(
        ("get", "replicasets", "-o", "wide", "--sort-by=.spec.replicas"), lambda said: "1         1         1" in said
    )
    tell.until(("get", "pods", "-o", "name"), lambda said: said.count("pod/") == 1)
    tell("rollout", "history", "deployment/web")
    said = tell.until(("describe", "deployment", "web"), lambda said: said.count("ScalingReplicaSet") >= 4)
    assert "NewReplicaSetAvailable" in said
    tell.until(("describe", "service", "web"), lambda said: "Endpoints" in said)
    tell("logs", "deployment/web")
    tell("delete", "deployment", "web", "--cascade=foreground")
    tell("get", "pods")


def jobs_run_to_their_end(tell: KubectlSession) -> None:
    tell("create", "job", "hello", f"--image={samples.IMAGE}", "--", "echo", "hello")
    tell("wait", "--for=condition=complete", "job/hello", "--timeout=60s")
    tell("get", "job", "hello")
    tell("logs", "job/hello")
    tell.until(("describe", "job", "hello"), lambda said: "Completed" in said)
    tell.apply(samples.job("fails", "false", backoffLimit=0))
    tell("wait", "--for=condition=failed", "job/fails", "--timeout=60s")
    tell.until(("describe", "job", "fails"), lambda said: "BackoffLimitExceeded" in said)
    tell("delete", "jobs", "--all")
    tell.until(("get", "pods"), lambda said: said.startswith("No resources"))


def pods_and_nodes_are_described(tell: KubectlSession) -> None:
    tell.apply(samples.pod("steady", "sleep", "100000"))
    tell("wait", "--for=condition=Ready", "pod/steady", "--timeout=30s")
    tell.until(("describe", "pod", "steady"), lambda said: "Started" in said)
    node = tell.value("pod/steady", ".spec.nodeName")
    # Machines differ, so this asserts what a reader looks for.
    said = tell.aside("describe", "node", node)
    for heading in ("Conditions:", "Addresses:", "Capacity:", "Allocatable:", "System Info:", "Allocated resources:"):
        assert f"\n{heading}" in said, said
    assert "steady" in said.partition("Non-terminated Pods:")[2]
    assert "KubeletReady" in said
    assert tell.aside("get", "node", node).splitlines()[1].split()[1] == "Ready"
    assert tell.aside("get", "nodes", "-o", "wide").splitlines()[0].split()[:6] == [
        *("NAME", "STATUS", "ROLES", "AGE", "VERSION", "INTERNAL-IP"),
    ]
    tell("delete", "pod", "steady")


def drain_respects_a_budget(tell: KubectlSession) -> None:
    tell.apply(samples.deployment("web"))
    tell.aside("rollout", "status", "deployment/web", "--timeout=60s")
    tell.apply(samples.budget("web", maxUnavailable=0))
    tell.until(("get", "pdb"), lambda said: said.splitlines()[1].split()[3] == "0")
    tell.until(("describe", "pdb", "web"), lambda said: "Allowed disruptions" in said)
    node = tell.value("pods", ".items[0].spec.nodeName")
    try:
        refused = tell.refused("drain", node, "--pod-selector=app=web", "--timeout=2s")
        assert "Cannot evict pod as it would violate the pod's disruption budget" in refused
        assert "SchedulingDisabled" in tell.aside("get", "node", node)
        tell("patch", "pdb", "web", "--type=merge", "-p", '{"spec":{"maxUnavailable":2}}')
        tell.until(("get", "pdb"), lambda said: said.splitlines()[1].split()[3] == "2")
        drained = tell.aside("drain", node, "--pod-selector=app=web", "--timeout=60s")
        assert drained.count("evicting pod") == 2
        assert f"node/{node} drained" in drained
        tell.until(("get", "pods"), lambda said: said.count("Pending") == 2)
        tell("drain", "absent-node", fails=True)
    finally:
        tell.aside("uncordon", node)
    tell.aside("rollout", "status", "deployment/web", "--timeout=60s")
    tell.until(("get", "pods"), lambda said: said.count("Running") == 2)


def taints_evict(tell: KubectlSession) -> None:
    tell.apply(samples.pod("evicted"))
    tell("wait", "--for=condition=Ready", "pod/evicted", "--timeout=30s")
    node = tell.value("pod/evicted", ".spec.nodeName")
    try:
        tell.aside("taint", "node", node, "kubectl-test=yes:NoExecute")
        tell.aside("wait", "--for=delete", "pod/evicted", "--timeout=60s")
        # Of a NoExecute taint the kubelet and the controller that evicts may learn later than the scheduler that it is
        # gone: they would reject or delete the pod that waited for it.
        tell.aside("taint", "node", node, "kubectl-test=yes:NoSchedule")
        tell.aside("taint", "node", node, "kubectl-test:NoExecute-")
        tell("apply", "-f", "-", input=yaml.safe_dump(samples.pod("waits")))
        said = tell.until(("describe", "pod", "waits"), lambda said: "FailedScheduling" in said)
        assert "untolerated taint" in said
    finally:
        tell.aside("taint", "node", node, "kubectl-test-")
    tell("wait", "--for=condition=Ready", "pod/waits", "--timeout=60s")
    tell("delete", "pod", "waits", "--now")
