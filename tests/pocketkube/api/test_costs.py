"""T02: the cost of a request is linear in what it carries, for every list and map that an object can have.

Each case is measured with n and with 4 n items, in CPU time of the process, as the smallest of a few runs. Linear work
costs four times as much, quadratic work sixteen times.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.pocketkube.api.direct_requests import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Answer,
    DirectRequests,
    config_map,
    pod,
)

JSON = dict[str, Any]
Request = Callable[[], Awaitable[Answer]]
Case = Callable[[DirectRequests, int], Awaitable[Request]]

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
NODES = "/api/v1/nodes"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
THINGS = "/apis/cost.io/v1/namespaces/default/things"
SOAK = os.environ.get("APPORTION_SOAK") == "1"
RUNS = 3
LINEAR = 4
LARGEST_RATIO = 9.0  # half-way, as a factor, between linear and quadratic
CASES: dict[str, tuple[int, Case]] = {}


def case(items: int) -> Callable[[Case], Case]:
    def add(made: Case) -> Case:
        CASES[made.__name__] = (items, made)
        return made

    return add


@case(2_000)
async def containers(ask: DirectRequests, items: int) -> Request:
    listed = [{"name": f"c{index}", "image": "i"} for index in range(items)]
    return lambda: ask("POST", f"{PODS}?dryRun=All", _pod(containers=listed))


@case(2_000)
async def init_containers(ask: DirectRequests, items: int) -> Request:
    listed = [{"name": f"i{index}", "image": "i"} for index in range(items)]
    return lambda: ask("POST", f"{PODS}?dryRun=All", _pod(initContainers=listed))


@case(1_000)
async def updated_containers(ask: DirectRequests, items: int) -> Request:
    listed = [{"name": f"c{index}", "image": "i"} for index in range(items)]
    await _made(ask, PODS, _pod(containers=listed))
    return lambda: ask("PATCH", f"{PODS}/p?dryRun=All", {"metadata": {"labels": {"a": "b"}}}, media=MERGE_PATCH)


@case(2_500)
async def updated_tolerations(ask: DirectRequests, items: int) -> Request:
    listed = [{"key": f"k{index}", "operator": "Exists"} for index in range(items)]
    await _made(ask, PODS, _pod(tolerations=listed))
    return lambda: ask("PATCH", f"{PODS}/p?dryRun=All", {"metadata": {"labels": {"a": "b"}}}, media=MERGE_PATCH)


@case(3_000)
async def replaced_tolerations(ask: DirectRequests, items: int) -> Request:
    listed = [{"key": f"k{index}", "operator": "Exists"} for index in range(items)]
    await _made(ask, PODS, _pod(tolerations=listed))
    others = [{"key": f"o{index}", "operator": "Exists"} for index in range(items)]
    return lambda: ask("PATCH", f"{PODS}/p?dryRun=All", {"spec": {"tolerations": others}}, media=MERGE_PATCH)


@case(3_000)
async def refused_pod_update(ask: DirectRequests, items: int) -> Request:
    """The refusal shows the difference of both specs."""
    await _made(ask, PODS, _pod(containers=[{"name": "c", "image": "i", "args": [f"a{n}" for n in range(items)]}]))
    args = [f"b{n}" for n in range(items)]
    change = {"spec": {"containers": [{"name": "c", "image": "i", "args": args}]}}
    return lambda: ask("PATCH", f"{PODS}/p?dryRun=All", change, media=MERGE_PATCH)


@case(8_000)
async def environment(ask: DirectRequests, items: int) -> Request:
    variables = [{"name": f"V{index}", "value": "x"} for index in range(items)]
    return lambda: ask("POST", f"{PODS}?dryRun=All", _pod(containers=[{"name": "c", "image": "i", "env": variables}]))


@case(3_000)
async def volumes_and_mounts(ask: DirectRequests, items: int) -> Request:
    volumes = [{"name": f"v{index}", "emptyDir": {}} for index in range(items)]
    mounts = [{"name": f"v{index}", "mountPath": f"/m{index}"} for index in range(items)]
    container = {"name": "c", "image": "i", "volumeMounts": mounts}
    return lambda: ask("POST", f"{PODS}?dryRun=All", _pod(containers=[container], volumes=volumes))


@case(5_000)
async def ports(ask: DirectRequests, items: int) -> Request:
    listed = [{"containerPort": 1 + index % 65_000, "name": f"p{index}"} for index in range(items)]
    return lambda: ask("POST", f"{PODS}?dryRun=All", _pod(containers=[{"name": "c", "image": "i", "ports": listed}]))


@case(5_000)
async def problems(ask: DirectRequests, items: int) -> Request:
    listed = [{"name": f"C!{index}", "image": ""} for index in range(items)]
    return lambda: ask("POST", f"{PODS}?dryRun=All", _pod(containers=listed))


@case(5_000)
async def taints(ask: DirectRequests, items: int) -> Request:
    listed = [{"key": f"k{index}", "effect": "NoSchedule"} for index in range(items)]
    return lambda: ask("POST", f"{NODES}?dryRun=All", {"metadata": {"name": "n"}, "spec": {"taints": listed}})


@case(2_000)
async def conditions(ask: DirectRequests, items: int) -> Request:
    """Every condition changes its manager."""
    listed = [{"type": f"T{index}", "status": "True"} for index in range(items)]
    await _made(ask, PODS, _pod())
    await ask("PATCH", f"{PODS}/p/status?fieldManager=a", {"status": {"conditions": listed}}, media=MERGE_PATCH)
    changed = [{**each, "status": "False"} for each in listed]
    status = {"status": {"conditions": changed}}
    return lambda: ask("PATCH", f"{PODS}/p/status?fieldManager=b&dryRun=All", status, media=MERGE_PATCH)


@case(2_000)
async def strategic_conditions(ask: DirectRequests, items: int) -> Request:
    listed = [{"type": f"T{index}", "status": "True"} for index in range(items)]
    await _made(ask, PODS, _pod())
    await ask("PATCH", f"{PODS}/p/status", {"status": {"conditions": listed}}, media=MERGE_PATCH)
    changed = {"status": {"conditions": [{**each, "status": "False"} for each in listed]}}
    return lambda: ask("PATCH", f"{PODS}/p/status?dryRun=All", changed, media=STRATEGIC_PATCH)


@case(4_000)
async def strategic_deletions(ask: DirectRequests, items: int) -> Request:
    variables = [{"name": f"V{index}", "value": "x"} for index in range(items)]
    await _made(ask, PODS, _pod(containers=[{"name": "c", "image": "i", "env": variables}]))
    gone = [{"name": f"V{index}", "$patch": "delete"} for index in range(items)]
    change = {"spec": {"containers": [{"name": "c", "env": gone}]}}
    return lambda: ask("PATCH", f"{PODS}/p?dryRun=All", change, media=STRATEGIC_PATCH)


@case(4_000)
async def strategic_finalizers(ask: DirectRequests, items: int) -> Request:
    listed = [f"a.io/f{index}" for index in range(items)]
    await _made(ask, MAPS, config_map("m", finalizers=listed))
    more = {"metadata": {"finalizers": [f"a.io/g{index}" for index in range(items)]}}
    return lambda: ask("PATCH", f"{MAPS}/m?dryRun=All", more, media=STRATEGIC_PATCH)


@case(4_000)
async def strategic_removal_of_finalizers(ask: DirectRequests, items: int) -> Request:
    listed = [f"a.io/f{index}" for index in range(items)]
    await _made(ask, MAPS, config_map("m", finalizers=listed))
    less = {"metadata": {"$deleteFromPrimitiveList/finalizers": listed[::-1]}}
    return lambda: ask("PATCH", f"{MAPS}/m?dryRun=All", less, media=STRATEGIC_PATCH)


@case(4_000)
async def strategic_order_and_retained_keys(ask: DirectRequests, items: int) -> Request:
    await _made(ask, MAPS, config_map("m", {f"k{index}": "x" for index in range(items)}))
    change = {"data": {"$retainKeys": [f"k{n}" for n in range(items)], **{f"k{n}": "y" for n in range(items)}}}
    return lambda: ask("PATCH", f"{MAPS}/m?dryRun=All", change, media=STRATEGIC_PATCH)


@case(4_000)
async def finalizers_of_a_deleted_object(ask: DirectRequests, items: int) -> Request:
    listed = [f"a.io/f{index}" for index in range(items)]
    await _made(ask, MAPS, config_map("m", finalizers=listed))
    await ask("DELETE", f"{MAPS}/m")
    change = {"metadata": {"labels": {"a": "b"}}}
    return lambda: ask("PATCH", f"{MAPS}/m?dryRun=All", change, media=MERGE_PATCH)


@case(4_000)
async def owner_references(ask: DirectRequests, items: int) -> Request:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p"}
    listed = [{**owner, "uid": f"u{index}"} for index in range(items)]
    await _made(ask, MAPS, config_map("m", ownerReferences=listed))
    more = {"metadata": {"ownerReferences": [{**owner, "uid": f"w{index}"} for index in range(items)]}}
    return lambda: ask("PATCH", f"{MAPS}/m?dryRun=All", more, media=STRATEGIC_PATCH)


@case(4_000)
async def data_of_another_manager(ask: DirectRequests, items: int) -> Request:
    """Every key is taken over: one manager loses it, the other gets it."""
    await _made(ask, MAPS, config_map("m", {f"k{index}": "x" for index in range(items)}))
    change = {"data": {f"k{index}": "y" for index in range(items)}}
    return lambda: ask("PATCH", f"{MAPS}/m?dryRun=All&fieldManager=other", change, media=MERGE_PATCH)


@case(3_000)
async def applied_configuration(ask: DirectRequests, items: int) -> Request:
    """A list with keys, applied in the opposite order."""
    variables = [{"name": f"V{index}", "value": "x"} for index in range(items)]
    first = {"apiVersion": "v1", "kind": "Pod", **_pod(containers=[{"name": "c", "image": "i", "env": variables}])}
    await ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    await ask("PATCH", f"{PODS}/p?fieldManager=m", first, media=APPLY_PATCH)
    container = {"name": "c", "image": "i", "env": variables[::-1]}
    again = {"apiVersion": "v1", "kind": "Pod", **_pod(containers=[container])}
    return lambda: ask("PATCH", f"{PODS}/p?fieldManager=m&force=true&dryRun=All", again, media=APPLY_PATCH)


@case(3_000)
async def applied_conflicts(ask: DirectRequests, items: int) -> Request:
    await _made(ask, MAPS, config_map("m", {f"k{index}": "x" for index in range(items)}))
    config = config_map("m", {f"k{index}": "y" for index in range(items)})
    return lambda: ask("PATCH", f"{MAPS}/m?fieldManager=other&dryRun=All", config, media=APPLY_PATCH)


@case(2_000)
async def json_patch_operations(ask: DirectRequests, items: int) -> Request:
    await _made(ask, MAPS, config_map("m", {"a": "x"}))
    operations = [{"op": "add", "path": f"/data/k{index}", "value": "y"} for index in range(items)]
    return lambda: ask("PATCH", f"{MAPS}/m?dryRun=All", operations, media=JSON_PATCH)


@case(4_000)
async def warnings(ask: DirectRequests, items: int) -> Request:
    body = config_map("w") | {f"unknown{index}": 1 for index in range(items)}
    return lambda: ask("POST", f"{MAPS}?dryRun=All&fieldValidation=Warn", body)


@case(300)
async def rules_of_a_role(ask: DirectRequests, items: int) -> Request:
    """By somebody who may grant only what he holds: the rule names many objects."""
    held = {"apiGroups": [""], "resources": ["pods", "secrets", "configmaps"], "verbs": ["get", "list", "watch"]}
    wanted = {**held, "resourceNames": [f"n{index}" for index in range(items)]}
    await _holder(ask, held, items)
    role = {"metadata": {"name": "r"}, "rules": [wanted]}
    return lambda: ask("POST", f"{ROLES}?x=1", role, impersonate_user="somebody")


@case(4_000)
async def custom_list_map(ask: DirectRequests, items: int) -> Request:
    await _things(ask)
    thing = _thing({"keyed": [{"key": f"k{index}", "value": "x"} for index in range(items)]})
    await _made(ask, THINGS, thing)
    change = {"spec": {"keyed": [{"key": f"k{index}", "value": "y"} for index in range(items)]}}
    return lambda: ask("PATCH", f"{THINGS}/t?dryRun=All", change, media=MERGE_PATCH)


@case(8_000)
async def custom_set(ask: DirectRequests, items: int) -> Request:
    await _things(ask)
    thing = _thing({"members": [f"m{index}" for index in range(items)]})
    return lambda: ask("POST", f"{THINGS}?dryRun=All", thing)


@case(2_000)
async def long_name_above_many_fields(ask: DirectRequests, items: int) -> Request:
    """The path of every field contains the name of its parent."""
    await _things(ask)
    thing = _thing({"nested": {"x" * items * 20: {f"k{index}": "v" for index in range(items)}}})
    return lambda: ask("POST", f"{THINGS}?dryRun=All", thing)


@case(2_000)
async def custom_problems_below_a_long_name(ask: DirectRequests, items: int) -> Request:
    await _things(ask)
    thing = _thing({"nested": {"x" * items * 20: {f"k{index}": 1 for index in range(items)}}})
    return lambda: ask("POST", f"{THINGS}?dryRun=All", thing)


@case(20_000)
async def pattern(ask: DirectRequests, items: int) -> Request:
    """A pattern that takes exponential time in engines that backtrack."""
    await _things(ask)
    thing = _thing({"pattern": "a" * items + "!"})
    return lambda: ask("POST", f"{THINGS}?dryRun=All", thing)


@case(20_000)
async def expression_with_a_pattern(ask: DirectRequests, items: int) -> Request:
    await _things(ask)
    thing = _thing({"matched": "a" * items + "!"})
    return lambda: ask("POST", f"{THINGS}?dryRun=All", thing)


@case(1_000)
async def expression_over_two_lists(ask: DirectRequests, items: int) -> Request:
    """A product of two lists ends when its budget is used up."""
    await _things(ask)
    thing = _thing({"compared": [f"m{index}" for index in range(items)]})
    return lambda: ask("POST", f"{THINGS}?dryRun=All", thing)


@case(2_000)
async def printer_column(ask: DirectRequests, items: int) -> Request:
    """Registration and output of a column with a long path."""
    version = _definition()["spec"]["versions"][0]
    columns = [{"name": "c", "type": "string", "jsonPath": ".a" * items}]
    await ask("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.cost.io")
    body = _definition(versions=[{**version, "additionalPrinterColumns": columns}])
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await _until_gone(ask, f"{path}/things.cost.io")
    assert (await ask("POST", path, body)).code == 201
    await _made(ask, THINGS, _thing({}))
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    return lambda: ask("GET", f"{THINGS}/t", accept=table)


@case(20)
async def selector_over_objects(ask: DirectRequests, items: int) -> Request:
    """Terms and objects are multiplied unless the terms are looked up."""
    for index in range(400):
        await ask("POST", MAPS, config_map(f"m{index}"))
    terms = ",".join(f"!k{index}" for index in range(items * 16))
    return lambda: ask("GET", f"{MAPS}?labelSelector={terms}")


@case(3_000)
async def webhook_paths(ask: DirectRequests, items: int) -> Request:
    """One problem per segment, and each shows the whole path."""
    service = {"name": "s", "namespace": "n", "path": "/A" * items}
    hook = {
        "name": "a.b.c",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": service},
    }
    body = {"metadata": {"name": "w"}, "webhooks": [hook]}
    return lambda: ask("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", body)


@case(3_000)
async def quota_names(ask: DirectRequests, items: int) -> Request:
    hard = {f"requests.a.io/r{index}": "1000000" for index in range(items)}
    quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    await _made(ask, "/api/v1/namespaces/default/resourcequotas", quota)
    amounts = {f"a.io/r{index}": "1" for index in range(items)}
    container = {"name": "c", "image": "i", "resources": {"limits": amounts}}
    count = iter(range(100))
    return lambda: ask("POST", PODS, pod(f"q{items}-{next(count)}") | {"spec": {"containers": [container]}})


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
async def test_t02_the_cost_of_a_request_is_linear(ask: DirectRequests, name: str) -> None:
    items, made = CASES[name]
    items = items if SOAK else items // 4
    few = await _least(ask, made, items)
    many = await _least(ask, made, LINEAR * items)
    assert many / few < LARGEST_RATIO, f"{items} items: {few:.3f} s, {LINEAR * items} items: {many:.3f} s"


def _pod(**spec: Any) -> JSON:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def _thing(spec: JSON) -> JSON:
    return {"apiVersion": "cost.io/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}


def _definition(**spec: Any) -> JSON:
    text = {"type": "string"}
    entry = {"type": "object", "required": ["key"], "properties": {"key": text, "value": text}}
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"], "items": entry}
    product = {"rule": "self.all(x, self.all(y, x + y != 'z'))"}
    properties = {
        "keyed": keyed,
        "members": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "nested": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": text}},
        "pattern": {"type": "string", "pattern": "^(a|a)*$"},
        "matched": {"type": "string", "x-kubernetes-validations": [{"rule": "self.matches('^(a|a)*$')"}]},
        "compared": {"type": "array", "items": text, "x-kubernetes-validations": [product]},
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing"}
    whole = {"group": "cost.io", "scope": "Namespaced", "names": names, "versions": [version], **spec}
    return {"metadata": {"name": "things.cost.io"}, "spec": whole}


async def _things(ask: DirectRequests) -> None:
    await ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition())


async def _made(ask: DirectRequests, path: str, body: JSON) -> None:
    name = body["metadata"]["name"]
    await ask("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, media=MERGE_PATCH)
    await ask("DELETE", f"{path}/{name}")
    answer = await ask("POST", path, body)
    assert answer.code == 201, answer.message[:1000]


async def _holder(ask: DirectRequests, rule: JSON, roles: int) -> None:
    """A user who holds a rule last, after many others, and may write roles."""
    group = "rbac.authorization.k8s.io"
    others = [{"apiGroups": [f"g{index}"], "resources": ["x"], "verbs": ["get"]} for index in range(roles)]
    writing = {"apiGroups": [group], "resources": ["roles"], "verbs": ["create"]}
    role = {"metadata": {"name": "held"}, "rules": [writing, *others, rule]}
    await ask("DELETE", f"{ROLES}/held")
    await ask("DELETE", f"{ROLES}/r")
    await ask("POST", ROLES, role)
    reference = {"apiGroup": group, "kind": "Role", "name": "held"}
    binding = {"metadata": {"name": "held"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "somebody"}]}
    await ask("POST", f"/apis/{group}/v1/namespaces/default/rolebindings", binding)


async def _until_gone(ask: DirectRequests, path: str) -> None:
    while (await ask("GET", path)).code == 200:  # noqa: ASYNC110  the server's state is no event of ours
        await asyncio.sleep(0.01)


async def _least(ask: DirectRequests, made: Case, items: int) -> float:
    request = await made(ask, items)
    costs = []
    for _ in range(RUNS):
        gc.collect()
        begun = time.process_time()
        answer = await request()
        costs.append(time.process_time() - begun)
        assert answer.code < 500, answer.body
    return min(costs)
