"""ValidatingAdmissionPolicies: what they match, what they say, and what happens when they cannot be evaluated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.contract.policies import BINDINGS, POLICIES, Policies, binding, denial, policy, registering, rule
from tests.contract.raw_requests import MERGE_PATCH, TABLE, RawRequests, config_map, deployment, pod, until

JSON = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def policies(ask: RawRequests, namespace: str) -> AsyncIterator[Policies]:
    async with registering(ask, namespace) as found:
        yield found


async def test_denials_have_message_reason_and_code(policies: Policies, namespace: str) -> None:
    await policies.apply(
        {"expression": "object.metadata.name != 'plain'"},
        {"expression": "object.metadata.name != 'said'", "message": " as it was written "},
        {
            "expression": "object.metadata.name != 'made'",
            "messageExpression": "'no ' + object.metadata.name + ' in ' + namespaceObject.metadata.name",
            "reason": "Forbidden",
        },
        {
            "expression": "object.metadata.name != 'broken'",
            "messageExpression": "string(object.data.nothing)",
            "message": "as a last resort",
            "reason": "RequestEntityTooLarge",
        },
        {"expression": "object.metadata.name != 'lines'", "messageExpression": "'a\\nb'"},
    )
    answers = {name: await policies.create(config_map(name)) for name in ("plain", "said", "made", "broken", "lines")}
    assert {name: (answer.code, answer.reason, denial(answer)) for name, answer in answers.items()} == {
        "plain": (422, "Invalid", "failed expression: object.metadata.name != 'plain'"),
        "said": (422, "Invalid", "as it was written"),
        "made": (403, "Forbidden", f"no made in {namespace}"),
        "broken": (413, "RequestEntityTooLarge", "as a last resort"),
        "lines": (422, "Invalid", "failed expression: object.metadata.name != 'lines'"),
    }
    said = f"ValidatingAdmissionPolicy '{namespace}' with binding '{namespace}' denied request: as it was written"
    assert answers["said"].message == f'configmaps "said" is forbidden: {said}'
    assert answers["said"].body["details"] == {"name": "said", "kind": "configmaps", "causes": [{"message": said}]}
    assert (await policies.create(config_map("other"))).code == 201


async def test_actions_of_a_binding(policies: Policies) -> None:
    await policies.apply(
        {"expression": "object.metadata.name != 'x'", "message": "mind the name"},
        "object.data.nothing == '1'",
        bound={"validationActions": ["Warn", "Audit"]},
    )
    answer = await policies.create(config_map("x"))
    where = f"Validation failed for ValidatingAdmissionPolicy '{policies.name}' with binding '{policies.name}': "
    error = "expression 'object.data.nothing == '1'' resulted in error: no such key: nothing"
    assert (answer.code, answer.warnings) == (
        201,
        (f'299 - "{where}mind the name"', f'299 - "{where}{error}"'),
    )


async def test_errors_follow_the_failure_policy(policies: Policies) -> None:
    name = policies.name
    spec: JSON = {
        "matchConditions": [{"name": "one", "expression": "object.metadata.name != 'left-out'"}],
        "variables": [
            {"name": "broken", "expression": "object.data.nothing"},
            {"name": "composed", "expression": "variables.broken + 'x'"},
        ],
    }
    unread = "object.metadata.name != 'reads' || variables.composed == 'x'"
    await policies.apply(unread, **spec)
    answers = {each: await policies.create(config_map(each)) for each in ("reads", "does-not", "left-out")}
    assert [answer.code for answer in answers.values()] == [422, 201, 201]
    inner = 'composited variable "broken" fails to evaluate: no such key: nothing'
    assert denial(answers["reads"]) == (
        f"expression '{unread}' resulted in error: composited variable \"composed\" fails to evaluate: {inner}"
    )
    await policies.ask("PATCH", f"{POLICIES}/{name}", {"spec": {"failurePolicy": "Ignore"}}, MERGE_PATCH)

    async def ignored() -> bool:
        return (await policies.create(config_map("reads"))).code == 201

    await until(ignored, "the update is obeyed")


async def test_match_conditions_that_fail(policies: Policies) -> None:
    conditions = [
        {"name": "one", "expression": "object.data.first == '1'"},
        {"name": "two", "expression": "oldObject.metadata.name == 'x'"},
        {"name": "three", "expression": "object.metadata.name != 'out'"},
    ]
    await policies.apply("false", matchConditions=conditions)
    first = "expression 'object.data.first == '1'' resulted in error: no such key: first"
    second = "expression 'oldObject.metadata.name == 'x'' resulted in error: no such key: metadata"
    assert denial(await policies.create(config_map("x"))) == f"[{first}, {second}]"
    assert (await policies.create(config_map("out"))).code == 201


async def test_what_a_policy_matches(policies: Policies, ask: RawRequests, maps: str) -> None:
    named = rule(operations="CREATE DELETE", resourceNames=["named", "spared"])
    deleted = rule(operations="DELETE")
    match = {
        "excludeResourceRules": [rule(operations="*", resourceNames=["spared", "gone"])],
        "objectSelector": {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]},
    }
    for name in ("kept", "gone"):
        await ask("POST", maps, config_map(name))
    await policies.apply("false", rules=[named, deleted], match=match)
    created = {name: (await policies.create(config_map(name))).code for name in ("named", "spared", "other")}
    created["free"] = (await policies.create(config_map("named", labels={"free": "yes"}))).code
    assert created == {"named": 422, "spared": 201, "other": 201, "free": 201}
    assert (await ask("DELETE", f"{maps}/kept")).code == 422
    assert (await ask("DELETE", f"{maps}/gone")).code == 200
    # A request for a collection names no object: neither rules nor expressions can go by `request.name`.
    whole = await ask("DELETE", maps)
    assert (whole.code, whole.body["details"]["name"]) == (422, "Unknown")


async def test_policies_without_bindings_and_bindings_without_policies(policies: Policies, ask: RawRequests) -> None:
    name = policies.name
    await policies.bind(binding(name, name, matchResources=policies.here))
    await policies.obeyed()
    assert (await policies.create(config_map("x"))).code == 201
    await policies.register(policy(name, "false"))

    async def denied() -> bool:
        return (await policies.create(config_map("x"))).code == 422

    await until(denied, "a binding waits for its policy")
    await ask("DELETE", f"{BINDINGS}/{name}")

    async def allowed() -> bool:
        return (await policies.create(config_map("x"))).code == 201

    await until(allowed, "a policy without a binding does nothing")


async def test_parameters(policies: Policies, ask: RawRequests, maps: str, namespace: str) -> None:
    for name, most in (("low", "1"), ("high", "3")):
        await ask("POST", maps, config_map(name, {"most": most}, labels={"limits": "yes", "name": name}))
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    counts = {
        "expression": "object.data.size() <= int(params.data.most)",
        "messageExpression": "'more than ' + params.data.most",
    }
    await policies.register(policy(namespace, counts, paramKind=kind))
    references: dict[str, JSON] = {
        "one": {"name": "high", "parameterNotFoundAction": "Deny"},
        "all": {"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"},
        "elsewhere": {"name": "high", "namespace": "default", "parameterNotFoundAction": "Allow"},
        "missing": {"name": "nobody", "parameterNotFoundAction": "Deny"},
        "spared": {"selector": {"matchLabels": {"limits": "no"}}, "parameterNotFoundAction": "Allow"},
        "none": {},
    }
    for name, reference in references.items():
        match = {**policies.here, "objectSelector": {"matchLabels": {"use": name}}}
        spec = {"paramRef": reference} if reference else {}
        await policies.bind(binding(f"{namespace}-{name}", namespace, matchResources=match, **spec))
    await policies.obeyed()

    async def parameters_are_read() -> bool:
        return (await policies.create(config_map("x", labels={"use": "one"}))).code == 201

    await until(parameters_are_read, "the server has read the parameters")
    found = {}
    for name in references:
        for count in (2, 4):
            data = {str(number): "" for number in range(count)}
            answer = await policies.create(config_map("x", data, labels={"use": name}))
            found[f"{name} {count}"] = denial(answer) if answer.code != 201 else ""
    missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    error = f"expression '{counts['expression']}' resulted in error: no such key: data"
    assert found.pop("all 4") in ("more than 1", "more than 3")  # either parameter may be the first
    assert found == {
        "one 2": "",
        "one 4": "more than 3",
        "all 2": "more than 1",
        **dict.fromkeys(("elsewhere 2", "elsewhere 4", "spared 2", "spared 4"), ""),
        **dict.fromkeys(("missing 2", "missing 4"), missing),
        **dict.fromkeys(("none 2", "none 4"), error),
    }


async def test_parameters_of_a_custom_kind_and_of_an_unknown_one(
    policies: Policies, ask: RawRequests, group: str, namespace: str
) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": group, "scope": "Cluster", "names": {"plural": "limits", "kind": "Limit"}, "versions": [version]}
    reference = {"name": "strict", "parameterNotFoundAction": "Deny"}
    expression = {"expression": "object.metadata.name != params.forbidden", "message": "by its name"}
    await policies.apply(
        expression, paramKind={"apiVersion": f"{group}/v1", "kind": "Limit"}, bound={"paramRef": reference}
    )
    unknown = f"failed to configure policy: failed to find resource referenced by paramKind: '{group}/v1, Kind=Limit'"
    answer = await policies.create(config_map("x"))
    assert denial(answer) == unknown
    assert answer.message.startswith(f"configmaps \"x\" is forbidden: ValidatingAdmissionPolicy '{namespace}' denied")
    await ask("POST", DEFINITIONS, {"metadata": {"name": f"limits.{group}"}, "spec": spec})
    body = {"apiVersion": f"{group}/v1", "kind": "Limit", "metadata": {"name": "strict"}, "forbidden": "x"}

    async def stored() -> bool:
        return (await ask("POST", f"/apis/{group}/v1/limits", body)).code in (201, 409)

    await until(stored, "the kind is served")
    # kube-apiserver looks for unknown kinds again when the policy changes.
    await ask("PATCH", f"{POLICIES}/{namespace}", {"spec": {"matchConditions": []}}, MERGE_PATCH)

    async def by_parameter() -> bool:
        return denial(await policies.create(config_map("x"))) == "by its name"

    try:
        await until(by_parameter, "the parameter is used")
        assert (await policies.create(config_map("y"))).code == 201
    finally:
        await ask("DELETE", f"{DEFINITIONS}/limits.{group}")


async def test_versions_of_a_kind_are_equivalent_unless_the_policy_is_exact(
    policies: Policies, ask: RawRequests, group: str, namespace: str
) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    await ask("POST", DEFINITIONS, {"metadata": {"name": f"things.{group}"}, "spec": spec})
    path = f"/apis/{group}/v2/namespaces/{namespace}/things"
    seen = {
        "expression": "false",
        "messageExpression": "object.apiVersion + ' ' + request.kind.version + ' ' + request.requestKind.version",
    }
    only = rule("things", group=group, version="v1", operations="CREATE")
    await policies.apply(seen, rules=[only])

    async def told() -> str:
        body = {"apiVersion": f"{group}/v2", "kind": "Thing", "metadata": {"name": "x"}}
        return denial(await policies.create(body, path))

    async def converted() -> bool:
        return await told() == f"{group}/v1 v1 v2"

    try:
        await until(converted, "the other version is converted")
        await ask(
            "PATCH", f"{POLICIES}/{namespace}", {"spec": {"matchConstraints": {"matchPolicy": "Exact"}}}, MERGE_PATCH
        )

        async def passed() -> bool:
            return await told() == ""

        await until(passed, "the other version is not meant")
    finally:
        await ask("DELETE", f"{DEFINITIONS}/things.{group}")


SHOWN = {
    "expression": "false",
    "messageExpression": "[request.operation, request.kind.kind, request.resource.resource, "
    "request.?subResource.orValue('-'), request.?name.orValue('-'), string(object == null ? 'null' : object.kind), "
    "string(oldObject == null ? 'null' : oldObject.kind)].join(' ')",
}


async def test_every_endpoint_shows_its_own_kind(
    policies: Policies, ask: RawRequests, pods: str, deployments: str, namespace: str
) -> None:
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    await ask("POST", pods, pod("one"))
    await ask("POST", deployments, deployment("web"))
    await policies.apply(
        SHOWN,
        rules=[everything],
        matchConditions=[{"name": "i", "expression": "request.userInfo.username == 'polly'"}],
        match={"objectSelector": {}},  # any other selects no connections
    )
    as_polly = {"Impersonate-User": "polly", "Impersonate-Group": "system:masters"}
    node = {"kind": "Node", "name": "nowhere"}
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    requests: dict[str, tuple[str, str, JSON | None, str]] = {
        "CREATE Pod pods - two Pod null": ("POST", pods, pod("two"), ""),
        "UPDATE Pod pods - one Pod Pod": ("PATCH", f"{pods}/one", {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH),
        "UPDATE Pod pods status one Pod Pod": ("PATCH", f"{pods}/one/status", {"status": {"reason": "x"}}, MERGE_PATCH),
        "CREATE Binding pods binding one Binding null": (
            *("POST", f"{pods}/one/binding"),
            {"metadata": {"name": "one"}, "target": node},
            "",
        ),
        "CREATE Binding bindings - one Binding null": (
            *("POST", f"/api/v1/namespaces/{namespace}/bindings"),
            {"metadata": {"name": "one"}, "target": node},
            "",
        ),
        "CREATE Eviction pods eviction one Eviction null": (
            *("POST", f"{pods}/one/eviction"),
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}},
            "",
        ),
        "CONNECT PodExecOptions pods exec one PodExecOptions null": ("POST", f"{pods}/one/exec", None, ""),
        "CREATE TokenRequest serviceaccounts token default TokenRequest null": (
            *("POST", f"{accounts}/default/token"),
            {"spec": {}},
            "",
        ),
        "UPDATE Scale deployments scale web Scale Scale": (
            *("PATCH", f"{deployments}/web/scale"),
            {"spec": {"replicas": 1}},
            MERGE_PATCH,
        ),
        "DELETE Pod pods - one null Pod": ("DELETE", f"{pods}/one", None, ""),
        "DELETE Pod pods - - null Pod": ("DELETE", pods, None, ""),
    }
    found = []
    for method, path, body, media in requests.values():
        query = {"container": "c", "command": "ls"} if path.endswith("exec") else {}
        answer = await ask(method, path, body, media or "application/json", headers=as_polly, **query)
        found.append(denial(answer))
    assert found == list(requests)


async def test_an_eviction_is_no_deletion(policies: Policies, ask: RawRequests, pods: str) -> None:
    await ask("POST", pods, pod("one"))
    await policies.apply("false", rules=[rule("pods", operations="DELETE")])
    assert (await ask("DELETE", f"{pods}/one")).code == 422
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}
    assert (await ask("POST", f"{pods}/one/eviction", eviction)).code == 201


async def test_t04_policies_know_the_node_of_a_bound_token(
    policies: Policies, ask: RawRequests, pods: str, maps: str, namespace: str
) -> None:
    node = f"node-{namespace}"
    await ask("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    try:
        await ask("POST", pods, pod("agent"))
        await ask("POST", f"{pods}/agent/binding", {"metadata": {"name": "agent"}, "target": {"name": node}})
        extra = "request.userInfo.extra[?'authentication.kubernetes.io/node-name'].orValue([])"
        await policies.apply(
            {"expression": f"object.data.node in {extra}", "messageExpression": f"'only on ' + {extra}.join()"},
            matchConditions=[
                {"name": "a", "expression": "request.userInfo.username.startsWith('system:serviceaccount')"}
            ],
        )
        account = f"system:serviceaccount:{namespace}:default"
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
        await ask(
            "POST",
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
            {"metadata": {"name": "edit"}, "roleRef": role, "subjects": [subject]},
        )
        request = {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "agent"}}}
        issued = await ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", request)
        bound = {"Authorization": f"Bearer {issued.body['status']['token']}"}
        forged = {"Impersonate-User": account, "Impersonate-Extra-authentication.kubernetes.io%2Fnode-name": "other"}

        async def wrote(name: str, headers: dict[str, str]) -> str:
            answer = await ask("POST", maps, config_map("x", {"node": name}), headers=headers, dryRun="All")
            return denial(answer) if answer.code != 201 else ""

        assert await wrote(node, bound) == ""
        assert await wrote("other", bound) == f"only on {node}"
        assert await wrote("other", forged) == ""
        assert await wrote(node, forged) == "only on other"
    finally:
        await ask("DELETE", f"/api/v1/nodes/{node}")


async def test_audit_annotations_are_evaluated(policies: Policies) -> None:
    annotations = [
        {"key": "fine", "valueExpression": "'seen ' + object.metadata.name"},
        {"key": "none", "valueExpression": "null"},
        {"key": "broken", "valueExpression": "string(object.data.a)"},
    ]
    await policies.apply(auditAnnotations=annotations)
    assert (await policies.create(config_map("x"))).code == 201
    answer = await policies.create(config_map("x", {}))
    assert denial(answer) == "expression 'string(object.data.a)' resulted in error: no such key: data"


async def test_status_tables_and_defaults(policies: Policies, ask: RawRequests, namespace: str) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    made = await policies.register(policy(namespace, "true", paramKind=kind))
    match = made.body["spec"]["matchConstraints"]
    assert made.body["spec"]["failurePolicy"] == "Fail"
    assert (match["matchPolicy"], match["namespaceSelector"]) == ("Equivalent", {})
    assert match["resourceRules"][0]["scope"] == "*"
    reference = {"name": "x", "parameterNotFoundAction": "Deny"}
    await policies.bind(binding(namespace, namespace, paramRef=reference))

    async def observed() -> bool:
        status = (await ask("GET", f"{POLICIES}/{namespace}")).body.get("status") or {}
        return bool(status == {"observedGeneration": 1, "typeChecking": {}})

    await until(observed, "the status is written")
    rows = [
        (await ask("GET", f"{path}/{namespace}", accept=TABLE)).body["rows"][0]["cells"][:-1]
        for path in (POLICIES, BINDINGS)
    ]
    assert rows == [[namespace, 1, "v1/ConfigMap"], [namespace, namespace, "*/x"]]


async def test_policies_that_make_no_sense_are_refused(ask: RawRequests) -> None:
    wrong = policy(
        "wrong",
        {"expression": "true", "reason": "Unauthorized", "message": "a\nb", "messageExpression": "1"},
        rules=[{"resources": ["pods/*", "pods/status"], "operations": ["*", "CREATE"]}],
        failurePolicy="Never",
        matchConditions=[{"name": "a", "expression": "variables.x == 1"}, {"name": "a", "expression": "true"}],
        variables=[{"name": "in", "expression": " "}],
        auditAnnotations=[{"key": "a b", "valueExpression": "1"}],
        paramKind={"apiVersion": "a/b/c", "kind": "9"},
    )
    answer = await ask("POST", POLICIES, wrong)
    assert [field for _, field in answer.causes] == [
        *("spec.failurePolicy", "spec.paramKind.apiVersion", "spec.paramKind.kind"),
        "spec.matchConstraints.resourceRules[0].operations",
        "spec.matchConstraints.resourceRules[0].apiGroups",
        "spec.matchConstraints.resourceRules[0].apiVersions",
        "spec.matchConstraints.resourceRules[0].resources[1]",
        *("spec.matchConditions[0].expression", "spec.matchConditions[1].name"),
        *("spec.variables[0].name", "spec.variables[0].expression"),
        *("spec.validations[0].messageExpression", "spec.validations[0].message", "spec.validations[0].reason"),
        *("spec.auditAnnotations[0].key", "spec.auditAnnotations[0].valueExpression"),
    ]
    bad = binding(
        "wrong",
        "A_",
        paramRef={"name": "a", "selector": {}, "parameterNotFoundAction": "Maybe"},
        matchResources={"matchPolicy": "Some"},
        validationActions=["Deny", "Warn", "Deny"],
    )
    answer = await ask("POST", BINDINGS, bad)
    assert [field for _, field in answer.causes] == [
        *("spec.policyName", "spec.paramRef.name", "spec.paramRef.selector", "spec.paramRef.parameterNotFoundAction"),
        *("spec.matchResources.matchPolicy", "spec.validationActions[2]", "spec.validationActions"),
    ]
