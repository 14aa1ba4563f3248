"""Who may do what: roles, service-account tokens, reviews, and rights that nobody can hand out without having."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pocketkube.api.access.tokens import Tokens
from pocketkube.api.request_attributes import ANONYMOUS, User
from pocketkube.api.server import ApiServer
from tests.pocketkube.api.content.serving import Server, serving

Obj = dict[str, Any]

ALICE = User("alice", ("system:authenticated",))
RBAC = "/apis/rbac.authorization.k8s.io/v1"
POD: Obj = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
READ_PODS: Obj = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


async def role(server: Server, rules: list[Obj], *, namespace: str = "default", name: str = "r") -> None:
    await server.create(f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": name}, "rules": rules})


async def bind(
    server: Server, subject: Obj, *, kind: str = "Role", name: str = "r", namespace: str = "default"
) -> None:
    body = {"metadata": {"name": f"{name}-b"}, "roleRef": {"kind": kind, "name": name}, "subjects": [subject]}
    await server.create(f"{RBAC}/namespaces/{namespace}/rolebindings", body)


async def test_nobody_may_do_anything_without_a_role() -> None:
    async with serving() as server:
        code, answer = await server.send("GET", "/api/v1/namespaces/default/pods", user=ALICE)
    assert (code, answer["reason"]) == (403, "Forbidden")
    who = 'User "alice" cannot list resource "pods" in API group "" in the namespace "default"'
    assert answer["message"] == f"pods is forbidden: {who}"


async def test_a_role_opens_what_it_names_and_nothing_else() -> None:
    async with serving() as server:
        await role(server, [READ_PODS])
        await bind(server, {"kind": "User", "name": "alice"})
        pods = "/api/v1/namespaces/default/pods"
        assert (await server.send("GET", pods, user=ALICE))[0] == 200
        assert (await server.send("GET", f"{pods}?watch=true", user=ALICE))[0] == 403
        assert (await server.send("POST", pods, POD, user=ALICE))[0] == 403
        assert (await server.send("GET", "/api/v1/pods", user=ALICE))[0] == 403
        assert (await server.send("GET", "/api/v1/namespaces/kube-system/pods", user=ALICE))[0] == 403
        assert (await server.send("GET", "/api/v1/namespaces/default/secrets", user=ALICE))[0] == 403


async def test_subresources_and_names_count() -> None:
    async with serving() as server:
        rules = [
            {"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["get", "delete"]},
        ]
        await role(server, rules)
        await bind(server, {"kind": "User", "name": "alice"})
        home = "/api/v1/namespaces/default/configmaps"
        for name in ("mine", "yours"):
            await server.create(home, {"metadata": {"name": name}})
        assert (await server.send("GET", f"{home}/mine", user=ALICE))[0] == 200
        assert (await server.send("GET", f"{home}/yours", user=ALICE))[0] == 403
        assert (await server.send("GET", home, user=ALICE))[0] == 403
        deployments = "/apis/apps/v1/namespaces/default/deployments/d"
        assert (await server.send("GET", f"{deployments}/scale", user=ALICE))[0] == 404
        assert (await server.send("GET", deployments, user=ALICE))[0] == 403


async def test_a_changed_role_counts_at_once() -> None:
    async with serving() as server:
        await role(server, [READ_PODS])
        await bind(server, {"kind": "User", "name": "alice"})
        assert (await server.send("GET", "/api/v1/namespaces/default/pods", user=ALICE))[0] == 200
        await server.send("DELETE", f"{RBAC}/namespaces/default/roles/r")
        assert (await server.send("GET", "/api/v1/namespaces/default/pods", user=ALICE))[0] == 403


async def test_built_in_roles_gather_their_rules() -> None:
    async with serving() as server:
        await bind(server, {"kind": "User", "name": "alice"}, kind="ClusterRole", name="edit")
        home = "/api/v1/namespaces/default"
        await server.create(f"{home}/pods", POD, user=ALICE)
        assert (await server.send("GET", f"{home}/secrets", user=ALICE))[0] == 200
        assert (await server.send("GET", f"{RBAC}/namespaces/default/roles", user=ALICE))[0] == 403
        assert (await server.send("GET", "/api/v1/nodes", user=ALICE))[0] == 403


async def test_everybody_may_ask_for_health_and_only_known_users_for_discovery() -> None:
    async with serving() as server:
        assert (await server.api.handle(_get("/readyz"), ANONYMOUS)).status == 200
        assert (await server.send("GET", "/version", user=ANONYMOUS))[0] == 200
        assert (await server.send("GET", "/apis", user=ANONYMOUS))[0] == 403
        assert (await server.send("GET", "/apis", user=ALICE))[0] == 200


async def test_nobody_can_grant_rights_that_they_do_not_have() -> None:
    async with serving() as server:
        rules = [
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create"]}
        ]
        await role(server, [*rules, READ_PODS])
        await bind(server, {"kind": "User", "name": "alice"})
        roles = f"{RBAC}/namespaces/default/roles"
        await server.create(roles, {"metadata": {"name": "same"}, "rules": [READ_PODS]}, user=ALICE)
        more = {"metadata": {"name": "more"}, "rules": [{**READ_PODS, "verbs": ["delete"]}]}
        message = await server.refused(roles, more, user=ALICE)
        assert "is attempting to grant RBAC permissions not currently held" in message
        binding = {
            "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "User", "name": "alice"}],
        }
        assert "not currently held" in await server.refused(
            f"{RBAC}/namespaces/default/rolebindings", binding, user=ALICE
        )


async def test_a_service_account_acts_with_its_token() -> None:
    async with serving() as server:
        await role(server, [READ_PODS])
        await bind(server, {"kind": "ServiceAccount", "name": "default", "namespace": "default"})
        token = await requested(server, {})
        headers = {"authorization": f"Bearer {token}"}
        assert (await server.send("GET", "/api/v1/namespaces/default/pods", user=None, headers=headers))[0] == 200
        code, answer = await server.send("GET", "/api/v1/nodes", user=None, headers=headers)
        assert code == 403
        assert 'User "system:serviceaccount:default:default" cannot list resource "nodes"' in answer["message"]


async def test_forged_and_foreign_tokens_are_rejected() -> None:
    async with serving() as server:
        token = await requested(server, {})
        head, claims, signature = token.split(".")
        for forged in (f"{head}.{claims}.{signature[::-1]}", f"{head}.e30.{signature}", "a.b.c", "...", "é.b.c", "x"):
            headers = {"authorization": f"Bearer {forged}"}
            assert (await server.send("GET", "/api/v1/pods", user=None, headers=headers))[0] == 401, forged
        other = await requested(server, {"audiences": ["somebody-else"]})
        assert server.api.tokens.authenticate(other) is None


async def test_a_token_ends_with_its_time() -> None:
    now = datetime(2025, 1, 1, tzinfo=UTC)
    api = ApiServer()
    tokens = Tokens(api.store, clock=lambda: now)
    _account(api)
    issued = tokens.issue("default", "robot", seconds=600)
    user = tokens.authenticate(issued.token)
    assert user is not None
    assert user.name == "system:serviceaccount:default:robot"
    assert "system:serviceaccounts:default" in user.groups
    now += timedelta(seconds=601)
    assert tokens.authenticate(issued.token) is None
    await api.close()


async def test_a_token_ends_with_the_pod_it_is_bound_to() -> None:
    async with serving() as server:
        pod = await server.create("/api/v1/namespaces/default/pods", POD)
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"]}
        token = await requested(server, {"boundObjectRef": bound})
        user = server.api.tokens.authenticate(token)
        assert user is not None
        assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
        await server.send("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0")
        assert server.api.tokens.authenticate(token) is None
        await server.create("/api/v1/namespaces/default/pods", POD)
        assert server.api.tokens.authenticate(token) is None


async def test_a_token_ends_with_its_account() -> None:
    async with serving() as server:
        token = await requested(server, {})
        await server.send("DELETE", "/api/v1/namespaces/default/serviceaccounts/default")
        await server.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        assert server.api.tokens.authenticate(token) is None


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"expirationSeconds": 5}, 422),
        ({"expirationSeconds": 2**40}, 422),
        ({"boundObjectRef": {"kind": "Pod", "name": "none"}}, 404),
        ({"boundObjectRef": {"kind": "Deployment", "name": "x"}}, 400),
    ],
)
async def test_tokens_that_cannot_be_had(spec: Obj, code: int) -> None:
    async with serving() as server:
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        assert (await server.send("POST", path, {"spec": spec}))[0] == code


async def test_reviews_answer_as_requests_are_judged() -> None:
    async with serving() as server:
        await role(server, [READ_PODS])
        await bind(server, {"kind": "User", "name": "alice"})
        home = "/apis/authorization.k8s.io/v1"
        asked = {"namespace": "default", "verb": "list", "resource": "pods"}
        own = await server.create(
            f"{home}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": asked}}, user=ALICE
        )
        assert own["status"]["allowed"] is True
        assert own["status"]["reason"].startswith(
            'RBAC: allowed by RoleBinding "r-b/default" of Role "r" to User "alice"'
        )
        spec = {"user": "bob", "resourceAttributes": asked}
        other = await server.create(f"{home}/subjectaccessreviews", {"spec": spec})
        assert other["status"] == {"allowed": False}
        rules = await server.create(f"{home}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}, user=ALICE)
        assert {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]} in rules["status"]["resourceRules"]
        me = await server.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, user=ALICE)
        assert me["status"]["userInfo"]["username"] == "alice"


async def test_a_token_review_tells_whose_token_it_is() -> None:
    async with serving() as server:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        good = await server.create(path, {"spec": {"token": await requested(server, {})}})
        assert good["status"]["authenticated"] is True
        assert good["status"]["user"]["username"] == "system:serviceaccount:default:default"
        bad = await server.create(path, {"spec": {"token": "x.y.z"}})
        assert "authenticated" not in bad["status"]


async def requested(server: Server, spec: Obj) -> str:
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    answer = await server.create(path, {"spec": spec})
    return str(answer["status"]["token"])


def _account(api: ApiServer) -> None:
    from pocketkube.api.storage.store import Bucket

    metadata = {"name": "robot", "namespace": "default", "uid": "u1"}
    api.store.create(Bucket("", "serviceaccounts"), "default", "robot", {"metadata": metadata})


def _get(path: str) -> Any:
    from apportion.cluster.transport import HttpRequest

    return HttpRequest("GET", path, (), {}, None)


async def test_acting_as_somebody_else_needs_the_right_to_it() -> None:
    async with serving() as server:
        await role(server, [READ_PODS])
        await bind(server, {"kind": "ServiceAccount", "name": "default", "namespace": "default"})
        pods = "/api/v1/namespaces/default/pods"
        as_account = {"impersonate-user": "system:serviceaccount:default:default"}
        assert (await server.send("GET", pods, headers=as_account))[0] == 200
        assert (await server.send("GET", "/api/v1/nodes", headers=as_account))[0] == 403
        assert (await server.send("GET", "/api/v1/nodes", headers={"impersonate-user": "bob"}))[0] == 403
        grouped = {"impersonate-user": "bob", "impersonate-group": "a, system:masters"}
        assert (await server.send("GET", "/api/v1/nodes", headers=grouped))[0] == 200
        code, answer = await server.send("GET", pods, headers={"impersonate-user": "bob"}, user=ALICE)
        assert code == 403
        why = 'User "alice" cannot impersonate resource "users" in API group "" at the cluster scope'
        assert answer["message"] == f'users "bob" is forbidden: {why}'
        assert (await server.send("GET", pods, headers={"impersonate-group": "x"}))[0] == 400
