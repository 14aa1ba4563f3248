"""Binding, eviction, scale, logs, tokens and what a simulated cluster refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketkube.api.server import ApiServer
from pocketkube.api.subresources.logs import LogOptions
from tests.pocketkube.api.direct_requests import MERGE_PATCH, STRATEGIC_PATCH, DirectRequests, pod
from tests.pocketkube.api.storage.test_writer import deployment

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def binding(name: str, node: str = "n1", **metadata: str) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}


async def test_a_pod_is_bound_once(ask: DirectRequests) -> None:
    made = (await ask("POST", PODS, pod("p"))).body["metadata"]
    answer = await ask("POST", f"{PODS}/p/binding", binding("p", uid=made["uid"], annotations={"a": "b"}))  # type: ignore[arg-type]
    assert (answer.code, answer.body["status"]) == (201, "Success")
    bound = (await ask("GET", f"{PODS}/p")).body
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["metadata"]["annotations"] == {"a": "b"}
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    again = await ask("POST", f"{PODS}/p/binding", binding("p", "n2"))
    assert (again.code, again.reason) == (409, "Conflict")
    assert again.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
    )


async def test_the_old_form_of_binding_works_too(ask: DirectRequests) -> None:
    await ask("POST", PODS, pod("p"))
    assert (await ask("POST", "/api/v1/namespaces/default/bindings", binding("p"))).code == 201
    assert (await ask("GET", f"{PODS}/p")).body["spec"]["nodeName"] == "n1"


async def test_a_binding_for_another_pod_of_that_name_is_refused(ask: DirectRequests) -> None:
    await ask("POST", PODS, pod("p"))
    assert (await ask("POST", f"{PODS}/p/binding", binding("p", uid="other"))).code == 409
    assert "nodeName" not in (await ask("GET", f"{PODS}/p")).body["spec"]


async def test_gated_and_leaving_pods_are_not_bound(ask: DirectRequests) -> None:
    gated = pod("gated")
    gated["spec"]["schedulingGates"] = [{"name": "x.y/z"}]
    await ask("POST", PODS, gated)
    assert "schedulingGates" in (await ask("POST", f"{PODS}/gated/binding", binding("gated"))).message
    await ask("POST", PODS, pod("leaving", finalizers=["x.y/z"]))
    await ask("DELETE", f"{PODS}/leaving")
    assert "is being deleted" in (await ask("POST", f"{PODS}/leaving/binding", binding("leaving"))).message


@pytest.mark.parametrize("target", [{}, {"kind": "Node"}, {"kind": "Pod", "name": "x"}, {"name": 5}, "n1"])
async def test_a_binding_needs_a_node(ask: DirectRequests, target: Any) -> None:
    await ask("POST", PODS, pod("p"))
    answer = await ask("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": target})
    assert answer.code in (400, 422)


async def running(ask: DirectRequests, name: str, *, ready: bool = True) -> None:
    await ask("POST", PODS, pod(name, node="n", labels={"app": "x"}))
    state = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    await ask("PATCH", f"{PODS}/{name}/status", {"status": state}, media=MERGE_PATCH)


async def budget(ask: DirectRequests, allowed: int, **state: int) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    await ask("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    state = {"observedGeneration": 1, "disruptionsAllowed": allowed, "desiredHealthy": 1, "currentHealthy": 1, **state}
    state |= {"expectedPods": 1}
    assert (await ask("PATCH", f"{BUDGETS}/b/status", {"status": state}, media=MERGE_PATCH)).code == 200


EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction"}


async def test_an_eviction_spends_the_budget_and_marks_the_pod(ask: DirectRequests) -> None:
    await running(ask, "p")
    await budget(ask, 1)
    answer = await ask("POST", f"{PODS}/p/eviction", {**EVICTION, "metadata": {"name": "p"}})
    assert (answer.code, answer.body["status"]) == (201, "Success")
    evicted = (await ask("GET", f"{PODS}/p")).body
    assert evicted["metadata"]["deletionTimestamp"]
    assert evicted["status"]["conditions"][-1]["reason"] == "EvictionByEvictionAPI"
    spent = (await ask("GET", f"{BUDGETS}/b")).body["status"]
    assert (spent.get("disruptionsAllowed", 0), list(spent["disruptedPods"])) == (0, ["p"])


async def test_an_exhausted_budget_refuses_with_its_numbers(ask: DirectRequests) -> None:
    await running(ask, "p")
    await budget(ask, 0)
    answer = await ask("POST", f"{PODS}/p/eviction", {**EVICTION, "metadata": {"name": "p"}})
    assert (answer.code, answer.reason) == (429, "TooManyRequests")
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert answer.body["details"]["causes"] == [
        {
            "reason": "DisruptionBudget",
            "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
        }
    ]
    assert "deletionTimestamp" not in (await ask("GET", f"{PODS}/p")).body["metadata"]


async def test_a_budget_that_was_not_looked_at_yet_refuses_for_a_while(ask: DirectRequests) -> None:
    await running(ask, "p")
    await budget(ask, 1, observedGeneration=0)
    answer = await ask("POST", f"{PODS}/p/eviction", EVICTION)
    assert (answer.code, answer.headers["retry-after"]) == (429, "10")


async def test_unready_pending_and_unprotected_pods_are_evicted_without_asking(ask: DirectRequests) -> None:
    await ask("POST", PODS, pod("pending", node="n", labels={"app": "x"}))
    await running(ask, "sick", ready=False)
    await budget(ask, 0)
    for name in ("pending", "sick"):
        assert (await ask("POST", f"{PODS}/{name}/eviction", EVICTION)).code == 201


async def test_scale_shows_and_changes_replicas(ask: DirectRequests) -> None:
    await ask("POST", DEPLOYMENTS, deployment("d", 2))
    scale = (await ask("GET", f"{DEPLOYMENTS}/d/scale")).body
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
    assert scale["status"] == {"replicas": 0, "selector": "a=d"}
    patched = await ask("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 5}}, media=MERGE_PATCH)
    assert patched.body["spec"]["replicas"] == 5
    stale = {**scale, "spec": {"replicas": 1}}
    assert (await ask("PUT", f"{DEPLOYMENTS}/d/scale", stale)).reason == "Conflict"
    assert (await ask("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": -1}}, media=MERGE_PATCH)).code == 422
    assert (await ask("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": "x"}}, media=MERGE_PATCH)).code in (
        400,
        422,
    )
    assert (await ask("GET", f"{DEPLOYMENTS}/d")).body["spec"]["replicas"] == 5


async def test_conditions_of_a_status_patch_merge_by_type(ask: DirectRequests) -> None:
    await ask("POST", PODS, pod("p"))
    for kind in ("A", "B"):
        patch = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        await ask("PATCH", f"{PODS}/p/status", patch, media=STRATEGIC_PATCH)
    conditions = (await ask("GET", f"{PODS}/p")).body["status"]["conditions"]
    assert sorted(each["type"] for each in conditions) == ["A", "B"]


class Logs:
    def __init__(self) -> None:
        self.asked: list[LogOptions] = []

    async def open_log(self, pod: dict[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        self.asked.append(options)

        async def lines() -> AsyncIterator[bytes]:
            yield f"{pod['metadata']['name']}/{options.container}\n".encode()

        return lines()


async def test_logs_come_from_whoever_runs_the_pod(ask: DirectRequests, server: ApiServer) -> None:
    source = Logs()
    server.subresources.log_source = source
    two = pod("two", node="n")
    two["spec"]["containers"].append({"name": "d", "image": "i"})
    await ask("POST", PODS, two)
    await ask("POST", PODS, pod("one", node="n"))
    from apportion.cluster.client import Client
    from pocketkube.api.in_process_transport import LocalTransport

    async with Client(LocalTransport(server)) as client:
        lines = b"".join([chunk async for chunk in client.logs("default", "one")])
    assert lines == b"one/c\n"
    ambiguous = await ask("GET", f"{PODS}/two/log")
    assert ambiguous.message == "a container name must be specified for pod two, choose one of: [c d]"
    assert (await ask("GET", f"{PODS}/two/log?container=z")).message == "container z is not valid for pod two"
    assert (await ask("GET", f"{PODS}/one/log?tailLines=-1")).code == 422
    assert source.asked[0] == LogOptions(container="c")


async def test_what_cannot_be_simulated_says_so(ask: DirectRequests) -> None:
    await ask("POST", PODS, pod("p"))
    for part in ("exec", "attach", "portforward"):
        answer = await ask("POST", f"{PODS}/p/{part}")
        assert (answer.code, answer.reason) == (405, "MethodNotAllowed")


async def test_tokens_are_issued_and_accepted(ask: DirectRequests, server: ApiServer) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    answer = await ask("POST", path, {"spec": {"expirationSeconds": 600}})
    assert answer.code == 201
    user = server.tokens.authenticate(answer.body["status"]["token"])
    assert user is not None
    assert user.name == "system:serviceaccount:default:default"
    assert (await ask("POST", path.replace("default/token", "nobody/token"), {"spec": {}})).code == 404
