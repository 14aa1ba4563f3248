"""T04: the token of an agent changes nothing of another node, and everything that its own node needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from apportion.apis import names
from tests.environments.api import Api
from tests.manifests.installed_tokens import (
    APPLY,
    CORE,
    DENIED,
    HERE,
    JSON_PATCH,
    MERGE,
    NAMESPACE,
    OURS,
    STRATEGIC,
    THERE,
    InstalledTokens,
    Json,
    accelerator,
    answer,
    claim,
    status,
)

Attack = tuple[str, str, Any, str]
JSON = "application/json"
TAINT = {"key": "example.com/evil", "effect": "NoExecute"}
LABEL = {"metadata": {"labels": {"evil": "yes"}}}
EVENTS = f"{CORE}/namespaces/default/events"


@pytest.fixture
def agent(tokens: InstalledTokens) -> Api:
    return tokens.agent_here


def writes(path: str, current: Json, *, custom: bool) -> Iterator[Attack]:
    """One of each way to write an object."""
    changed = current | {"metadata": current["metadata"] | LABEL["metadata"]}
    changed["metadata"] = {key: value for key, value in changed["metadata"].items() if key != "managedFields"}
    apply = {"apiVersion": current["apiVersion"], "kind": current["kind"], **LABEL}
    apply["metadata"] = {"name": current["metadata"]["name"], **LABEL["metadata"]}
    yield "PUT", path, changed, JSON
    yield "PATCH", path, LABEL, MERGE
    yield "PATCH", path, [{"op": "add", "path": "/metadata/labels", "value": {"evil": "yes"}}], JSON_PATCH
    yield "PATCH", f"{path}?fieldManager=evil&force=true", apply, APPLY
    if not custom:
        yield "PATCH", path, LABEL, STRATEGIC
    yield "DELETE", path, None, JSON
    yield "DELETE", path, {"gracePeriodSeconds": 0}, JSON


def of_a_node(tokens: InstalledTokens, node: str) -> dict[str, bool]:
    """Everything of a node: the path, and whether its kind is a custom one."""
    return {
        f"{CORE}/nodes/{node}": False,
        f"{CORE}/nodes/{node}/status": False,
        f"{OURS}/nodeaccelerators/{node}": True,
        f"{OURS}/nodeaccelerators/{node}/status": True,
        f"{OURS}/allocationclaims/claim-{node}": True,
        f"{OURS}/allocationclaims/claim-{node}/status": True,
        f"{CORE}/namespaces/default/pods/user-{node}": False,
        f"{CORE}/namespaces/default/pods/user-{node}/status": False,
        f"{CORE}/namespaces/{NAMESPACE}/pods/agent-{node}": False,
    }


def test_t04_no_verb_of_an_agent_changes_an_object_of_another_node(tokens: InstalledTokens, agent: Api) -> None:
    for path, custom in of_a_node(tokens, THERE).items():
        current = tokens.api.get(path)
        for method, target, body, kind in writes(path, current, custom=custom):
            assert status(agent, method, target, body, kind) == DENIED, (method, target, kind)
        assert tokens.api.get(path) == current


def test_t04_an_agent_cannot_taint_evict_or_take_finalizers_elsewhere(tokens: InstalledTokens, agent: Api) -> None:
    there, claims = f"{CORE}/nodes/{THERE}", f"{OURS}/allocationclaims"
    pods, system = f"{CORE}/namespaces/default/pods", f"{CORE}/namespaces/{NAMESPACE}/pods"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": f"user-{THERE}"}}
    binding = {"metadata": {"name": f"user-{THERE}"}, "target": {"kind": "Node", "name": HERE}}
    stray = tokens.api.get(f"{pods}/user-{THERE}")
    attacks: list[Attack] = [
        ("PATCH", there, {"spec": {"taints": [TAINT]}}, MERGE),
        ("PATCH", there, {"spec": {"unschedulable": True}}, MERGE),
        ("PATCH", there, {"metadata": {"labels": {names.MIG_CAPABLE_LABEL: None}}}, MERGE),
        ("PATCH", there, {"metadata": {"labels": {"nvidia.com/mig.config.state": "failed"}}}, MERGE),
        ("PATCH", f"{claims}/claim-{THERE}", {"metadata": {"finalizers": None}}, MERGE),
        ("PATCH", f"{claims}/claim-{THERE}", {"spec": {"nodename": HERE}}, MERGE),
        ("PATCH", f"{claims}/claim-{THERE}/status", {"status": {"state": "inUse"}}, MERGE),
        ("POST", claims, claim(THERE, stray, "made-there"), JSON),
        ("POST", claims, claim(HERE, stray, "made-here"), JSON),
        ("DELETE", claims, None, JSON),
        ("DELETE", f"{OURS}/nodeaccelerators", None, JSON),
        ("DELETE", f"{CORE}/nodes", None, JSON),
        ("POST", f"{OURS}/nodeaccelerators", accelerator({"name": "third"}), JSON),
        ("POST", f"{OURS}/nodeaccelerators", accelerator({"generateName": HERE}), JSON),
        ("POST", f"{CORE}/nodes", {"metadata": {"name": "third"}}, JSON),
        ("POST", f"{pods}/user-{THERE}/eviction", eviction, JSON),
        ("POST", f"{pods}/user-{HERE}/eviction", eviction | {"metadata": {"name": f"user-{HERE}"}}, JSON),
        ("POST", f"{pods}/user-{THERE}/binding", binding, JSON),
        ("POST", f"{system}/agent-{THERE}/eviction", eviction | {"metadata": {"name": f"agent-{THERE}"}}, JSON),
        ("POST", EVENTS, event(THERE), JSON),
        ("POST", EVENTS, event(HERE, about=("Node", THERE)), JSON),
        ("POST", EVENTS, event(HERE, component="kubelet"), JSON),
    ]
    for method, path, body, kind in attacks:
        assert status(agent, method, path, body, kind) == DENIED, (method, path, body)
    assert status(tokens.agent_there, "POST", EVENTS, event(THERE, name="of-there"), JSON) == 200
    assert status(agent, "PATCH", f"{EVENTS}/of-there", {"message": "changed"}, MERGE) == DENIED
    tokens.api.delete(f"{EVENTS}/of-there")


def test_t04_of_its_own_node_an_agent_writes_only_what_it_needs(tokens: InstalledTokens, agent: Api) -> None:
    own, claimed = f"{CORE}/nodes/{HERE}", f"{OURS}/allocationclaims/claim-{HERE}"
    attacks: list[Attack] = [
        ("PATCH", own, {"spec": {"taints": [TAINT]}}, MERGE),
        ("PATCH", own, {"metadata": {"labels": {names.MIG_CAPABLE_LABEL: None}}}, MERGE),
        ("PATCH", own, {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, MERGE),
        ("PATCH", own, {"metadata": {"annotations": {"evil": "yes"}}}, MERGE),
        ("PATCH", own, {"metadata": {"finalizers": ["example.com/evil"]}}, MERGE),
        ("PATCH", f"{own}/status", {"status": {"capacity": {"nvidia.com/gpu": "99"}}}, MERGE),
        ("DELETE", own, None, JSON),
        ("PATCH", claimed, {"spec": {"nodename": THERE}}, MERGE),
        ("PATCH", claimed, {"spec": {"podRef": {"uid": "other"}}}, MERGE),
        ("PATCH", claimed, {"spec": {"profile": "7g.40gb"}}, MERGE),
        ("PATCH", claimed, LABEL, MERGE),
        ("PATCH", claimed, {"metadata": {"finalizers": [names.SLICE_FINALIZER, "example.com/evil"]}}, MERGE),
        ("DELETE", f"{OURS}/nodeaccelerators/{HERE}", None, JSON),
        ("PATCH", f"{OURS}/nodeaccelerators/{HERE}", {"metadata": {"finalizers": ["example.com/evil"]}}, MERGE),
    ]
    for method, path, body, kind in attacks:
        assert status(agent, method, path, body, kind) == DENIED, (method, path, body)


def test_t04_an_agent_can_do_its_work_on_its_own_node(tokens: InstalledTokens, agent: Api) -> None:
    own, claims = f"{CORE}/nodes/{HERE}", f"{OURS}/allocationclaims"
    tokens.api.create(claims, claim(HERE, tokens.api.get(f"{CORE}/namespaces/default/pods/user-{HERE}"), "work"))
    state = {"status": {"state": "processing", "migUUID": "MIG-1"}}
    moved = {"spec": {"gpuUUID": "GPU-2", "migPlacement": {"start": 1, "size": 1}}}
    work: list[Attack] = [
        ("PATCH", own, {"metadata": {"labels": {"nvidia.com/mig.config.state": "success"}}}, MERGE),
        ("PATCH", own, {"metadata": {"labels": {"nvidia.com/mig.config.state": None}}}, MERGE),
        ("PATCH", f"{OURS}/nodeaccelerators/{HERE}/status", {"status": {"gpus": []}}, MERGE),
        ("PATCH", f"{claims}/work/status", state, MERGE),
        ("PATCH", f"{claims}/work", moved, MERGE),
        ("DELETE", f"{claims}/work", None, JSON),
        ("PATCH", f"{claims}/work", {"metadata": {"finalizers": []}}, MERGE),
        ("POST", EVENTS, event(HERE, name="work"), JSON),
        ("PATCH", f"{EVENTS}/work", {"count": 2}, MERGE),
    ]
    for method, path, body, kind in work:
        assert answer(agent, method, path, body, kind)[0] == 200, (method, path, answer(agent, method, path, body))
    assert not tokens.api.exists(f"{claims}/work")
    tokens.api.delete(f"{EVENTS}/work")


def test_t04_a_new_node_gets_its_accelerator_from_its_agent(tokens: InstalledTokens, agent: Api) -> None:
    path = f"{OURS}/nodeaccelerators"
    tokens.api.delete(f"{path}/{HERE}")
    stranger = [{"apiVersion": "v1", "kind": "Node", "name": THERE, "uid": "1"}]
    foreign = accelerator({"name": HERE, "ownerReferences": stranger})
    assert status(agent, "POST", path, foreign) == DENIED
    uid = tokens.api.get(f"{CORE}/nodes/{HERE}")["metadata"]["uid"]
    owner = [{"apiVersion": "v1", "kind": "Node", "name": HERE, "uid": uid}]
    assert status(agent, "POST", path, accelerator({"name": HERE, "ownerReferences": owner})) == 200


def test_t04_a_token_that_is_bound_to_no_node_is_denied_everything(tokens: InstalledTokens) -> None:
    unbound = tokens.token("das-daemonset")
    label = {"metadata": {"labels": {"nvidia.com/mig.config.state": "success"}}}
    for method, path, body in (
        ("PATCH", f"{CORE}/nodes/{HERE}", label),
        ("PATCH", f"{OURS}/nodeaccelerators/{HERE}/status", {"status": {"gpus": []}}),
        ("PATCH", f"{OURS}/allocationclaims/claim-{HERE}/status", {"status": {"state": "processing"}}),
    ):
        code, text = answer(unbound, method, path, body, MERGE)
        assert code == DENIED
        assert "ValidatingAdmissionPolicy" in text
    assert status(unbound, "POST", EVENTS, event(HERE)) == DENIED
    assert status(unbound, "DELETE", f"{OURS}/allocationclaims/claim-{HERE}") == DENIED


def event(
    host: str, *, name: str = "evil", component: str = "apportion-node", about: tuple[str, str] = ("", "")
) -> Json:
    kind, subject = about if about[0] else ("Pod", f"user-{host}")
    involved = {"apiVersion": "v1", "kind": kind, "name": subject}
    source = {"component": component, "host": host}
    body = {"metadata": {"name": name}, "reason": "Test", "message": "m", "type": "Normal", "source": source}
    body["involvedObject"] = involved | ({} if kind == "Node" else {"namespace": "default"})
    return body | {"reportingComponent": component, "reportingInstance": host}
