"""Admission policies in the embedded API server: at once, bounded, and free for requests that none concerns."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pocketkube.api.request_attributes import AUTHENTICATED, User
from pocketkube.api.server import ApiServer
from tests.contract.policies import BINDINGS, POLICIES, binding, denial, policy, rule
from tests.pocketkube.api.direct_requests import MERGE_PATCH, Answer, DirectRequests, config_map

MAPS = "/api/v1/namespaces/default/configmaps"


async def apply(ask: DirectRequests, name: str, *validations: str | dict[str, Any], **spec: Any) -> None:
    for path, body in ((POLICIES, policy(name, *validations, **spec)), (BINDINGS, binding(name, name))):
        answer = await ask("POST", path, body)
        assert answer.code == 201, answer.body


async def created(ask: DirectRequests, name: str = "x") -> Answer:
    return await ask("POST", f"{MAPS}?dryRun=All", config_map(name))


async def test_changes_of_policies_and_bindings_count_at_once(ask: DirectRequests) -> None:
    await apply(ask, "p", "object.metadata.name != 'x'")
    assert (await created(ask)).code == 422
    await ask("PATCH", f"{POLICIES}/p", {"spec": {"validations": [{"expression": "true"}]}}, media=MERGE_PATCH)
    assert (await created(ask)).code == 201
    await ask("PATCH", f"{POLICIES}/p", {"spec": {"validations": [{"expression": "false"}]}}, media=MERGE_PATCH)
    assert (await created(ask)).code == 422
    await ask("DELETE", f"{BINDINGS}/p")
    assert (await created(ask)).code == 201
    await ask("POST", BINDINGS, binding("again", "p"))
    assert (await created(ask)).code == 422
    await ask("DELETE", f"{POLICIES}/p")
    assert (await created(ask)).code == 201


async def test_a_policy_cannot_protect_itself_or_its_bindings(ask: DirectRequests) -> None:
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    await apply(ask, "all", "false", rules=[everything])
    assert (await created(ask)).code == 422
    assert (await ask("DELETE", f"{BINDINGS}/all")).code == 200
    assert (await created(ask)).code == 201


DOUBLED = {
    "text": ("'aaaaaaaaaaaaaaaa'", "variables.v{0} + variables.v{0}", "size(variables.v{0}) == 1"),
    "list": ("[1, 2, 3, 4]", "variables.v{0} + variables.v{0}", "size(variables.v{0}) == 1"),
    "nested": ("[1]", "[dyn(variables.v{0}), dyn(variables.v{0})]", "variables.v{0} == dyn([variables.v{0}])"),
    "map": (
        "dyn({'a': 1})",
        "dyn({{'a': variables.v{0}, 'b': variables.v{0}}})",
        "'%s'.format([variables.v{0}]) == ''",
    ),
    "entries": ("[1, 2, 3]", "variables.v{0}.map(x, variables.v{0}.size() + x)", "variables.v{0}.size() == 1"),
    "joined": (
        "['aaaaaaaaaaaaaaaa']",
        "[variables.v{0}.join('bbbbbbbb'), variables.v{0}[0]]",
        "variables.v{0}[0] == ''",
    ),
    "replaced": ("'aaaa'", "variables.v{0}.replace('a', 'aaaa')", "variables.v{0}.contains('b')"),
}


@pytest.mark.parametrize("case", sorted(DOUBLED))
async def test_t02_variables_that_double_each_other_end(ask: DirectRequests, case: str) -> None:
    """Every variable is twice the one before it: 2^40 parts, unless somebody counts."""
    first, next_one, last = DOUBLED[case]
    variables = [{"name": "v0", "expression": first}]
    variables += [{"name": f"v{number}", "expression": next_one.format(number - 1)} for number in range(1, 41)]
    await apply(ask, "doubled", last.format(40), variables=variables)
    answer = await created(ask)
    assert answer.code == 422
    if case not in ("entries", "joined"):  # these stay small
        assert "cost limit exceeded" in denial(answer) or "too long" in denial(answer), answer.message
    assert (await ask("GET", "/api/v1/namespaces/default")).code == 200


async def test_t02_what_cannot_be_judged_in_time_is_denied_and_not_let_through(ask: DirectRequests) -> None:
    loop = "[1,2,3,4,5,6,7,8,9,10]"
    nested = "true"
    for depth in range(8):
        nested = f"{loop}.all(x{depth}, {nested})"
    await apply(ask, "long", nested)
    answer = await created(ask)
    assert (answer.code, "cost limit exceeded" in denial(answer)) == (422, True)


async def test_requests_that_no_policy_concerns_cost_nothing(ask: DirectRequests, server: ApiServer) -> None:
    del server
    await created(ask)
    before = await _calls(ask)
    for number in range(100):
        await apply(ask, f"p{number}", "false", rules=[rule("secrets", "pods")])
    await created(ask)
    after = await _calls(ask)
    assert after <= before * 1.02, (before, after)


async def _calls(ask: DirectRequests) -> int:
    """How many functions one request calls."""
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        answer = await created(ask)
    finally:
        sys.setprofile(None)
    assert answer.code == 201
    return count


async def test_the_authorizer_answers_for_the_user_of_the_request(server: ApiServer, ask: DirectRequests) -> None:
    role = {"metadata": {"name": "maps"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]}
    extra = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["approve"], "resourceNames": ["x"]}
    api = "/apis/rbac.authorization.k8s.io/v1"
    await ask("POST", f"{api}/clusterroles", role)
    await ask("POST", f"{api}/clusterroles", {"metadata": {"name": "approver"}, "rules": [extra]})
    for name, granted in (("ada", ("maps",)), ("bob", ("maps", "approver"))):
        for each in granted:
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": each}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
            body = {"metadata": {"name": f"{name}-{each}"}, "roleRef": reference, "subjects": [subject]}
            await ask("POST", f"{api}/clusterrolebindings", body)
    role["rules"][0]["verbs"] = ["create"]  # type: ignore[index]
    await ask("PUT", f"{api}/clusterroles/maps", role)
    await apply(ask, "approved", "authorizer.requestResource.check('approve').allowed()")
    codes = {}
    for name in ("ada", "bob"):
        theirs = DirectRequests(server, User(name, (AUTHENTICATED,)))
        codes[name] = [(await created(theirs, each)).code for each in ("x", "y")]
    assert codes == {"ada": [422, 422], "bob": [201, 422]}
