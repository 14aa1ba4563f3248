"""Admission webhooks, on the embedded server as on a real one: order, patches, policies, invalid answers and
timeouts."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apportion.cluster.certificates import Authority
from tests.environments.api import RefusedError
from tests.environments.cluster import Cluster
from tests.environments.sandbox_init import SERVICE_ADDRESS

Obj = dict[str, Any]

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Hooks:
    """A webhook server near one cluster, and the configurations that a test registers."""

    def __init__(self, cluster: Cluster, namespace: str, port: int, authority: Authority, log: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.port = port
        self._bundle = base64.b64encode(authority.bundle).decode()
        self._log = log
        self._registered: list[str] = []

    def register(self, name: str, *paths: str, kind: str = MUTATING, timeout: int = 10, **fields: Any) -> None:
        """Webhooks for pods of the test's namespace, one per path, in one configuration."""
        self.configure(name, *(self.hook(path, **fields) for path in paths), kind=kind, timeout=timeout)

    def hook(self, path: str, **fields: Any) -> Obj:
        safe = path.replace("=", "-")
        return {"name": f"{safe}.hooks.test", "clientConfig": self.client(path), **fields}

    def client(self, path: str) -> Obj:
        return {"url": f"https://127.0.0.1:{self.port}/{path}", "caBundle": self._bundle}

    def service(self, name: str, path: str) -> Obj:
        return {
            "service": {"name": name, "namespace": self.namespace, "path": f"/{path}", "port": 8443},
            "caBundle": self._bundle,
        }

    def configure(self, name: str, *hooks: Obj, kind: str = MUTATING, timeout: int = 10) -> None:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
        defaults = {
            "rules": [rule],
            "namespaceSelector": here,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": timeout,
        }
        webhooks = [{**defaults, **hook} for hook in hooks]
        self.cluster.api.create(kind, {"metadata": {"name": name}, "webhooks": webhooks})
        self._registered.append(f"{kind}/{name}")
        if self.cluster.kind == "real":
            time.sleep(0.4)  # a real server learns of configurations through a watch

    def create(self, name: str = "p", query: str = "", **metadata: Any) -> Obj:
        return self.cluster.api.create(f"/api/v1/namespaces/{self.namespace}/pods{query}", pod(name, **metadata))

    def refused(self, name: str = "p") -> tuple[int, str, str]:
        """Code, reason and message of a creation that fails."""
        code, answer = self.send("POST", f"/api/v1/namespaces/{self.namespace}/pods", pod(name))
        assert code >= 400, answer
        return code, answer.get("reason", ""), answer["message"]

    def send(self, method: str, path: str, body: Obj) -> tuple[int, Obj]:
        try:
            return 200, json.loads(self.cluster.api.send(method, path, body))
        except RefusedError as refusal:
            return refusal.code, json.loads(refusal.body)

    def requests(self) -> list[Obj]:
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    def clear(self) -> None:
        """Everything that a test has made or heard."""
        for path in self._registered:
            self.cluster.api.delete(path)
        self._registered = []
        home = f"/api/v1/namespaces/{self.namespace}"
        self.cluster.api.send("DELETE", f"{home}/pods", {"gracePeriodSeconds": 0})
        self.cluster.api.delete(f"{home}/services/hooks")
        self.cluster.api.delete(f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices/hooks")
        self._log.unlink(missing_ok=True)


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooks]:
    name = {"embedded": "embedded_cluster", "real": "control_plane"}[request.param]
    cluster: Cluster = request.getfixturevalue(name)
    folder = tmp_path_factory.mktemp("hooks")
    namespace = f"hooks-{secrets.token_hex(4)}"
    authority = Authority.create("hooks")
    authority.issue([f"hooks.{namespace}.svc"], ["127.0.0.1"]).save(folder / "hook.crt", folder / "hook.key")
    log = folder / "requests.jsonl"
    command = [*getattr(cluster, "enter", []), sys.executable, str(Path(__file__).with_name("webhook_process.py"))]
    arguments = [str(folder / "hook.crt"), str(folder / "hook.key"), str(log)]
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    _await_account(cluster, namespace)
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Hooks(cluster, namespace, int(process.stdout.readline()), authority, log)
        process.terminate()
    cluster.api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture
def hooks(served: Hooks) -> Iterator[Hooks]:
    yield served
    served.clear()


def pod(name: str, **metadata: Any) -> Obj:
    spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def _await_account(cluster: Cluster, namespace: str) -> None:
    deadline = time.monotonic() + 20
    while not cluster.api.exists(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_patches_are_applied_and_the_result_is_completed(hooks: Hooks) -> None:
    hooks.register("a", "container")
    pod = hooks.create()
    assert [each["name"] for each in pod["spec"]["containers"]] == ["c", "added"]
    assert pod["spec"]["containers"][1]["imagePullPolicy"] == "Always"


def test_configurations_are_called_in_the_order_of_their_names(hooks: Hooks) -> None:
    hooks.register("b", "label=x=two")
    hooks.register("a", "label=x=one", "label=y=one")
    pod = hooks.create()
    assert pod["metadata"]["labels"] == {"x": "two", "y": "one"}
    assert [each["path"] for each in hooks.requests()] == ["label=x=one", "label=y=one", "label=x=two"]


def test_a_webhook_that_wants_to_is_called_again_after_a_change(hooks: Hooks) -> None:
    hooks.register("a", "count", reinvocationPolicy="IfNeeded")
    hooks.register("b", "container")
    assert hooks.create()["metadata"]["labels"] == {"counted": "2"}
    assert [each["path"] for each in hooks.requests()] == ["count", "container", "count"]


def test_a_webhook_that_does_not_want_to_is_called_once(hooks: Hooks) -> None:
    hooks.register("a", "count")
    hooks.register("b", "container")
    assert hooks.create()["metadata"]["labels"] == {"counted": "1"}


def test_the_request_says_who_does_what(hooks: Hooks) -> None:
    hooks.register("a", "allow")
    hooks.create("first", "?dryRun=All&fieldManager=me")
    request = hooks.requests()[0]
    assert request["operation"] == "CREATE"
    assert request["kind"] == request["requestKind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert request["resource"] == request["requestResource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert (request["namespace"], request["name"], request["dryRun"]) == (hooks.namespace, "first", True)
    assert request["query"] == "timeout=10s"
    assert request["userInfo"]["username"]
    assert "system:masters" in request["userInfo"]["groups"]
    assert request["oldObject"] is None
    assert request["object"]["spec"]["schedulerName"] == "default-scheduler"
    assert request["options"]["kind"] == "CreateOptions"
    assert request["options"]["fieldManager"] == "me"


def test_updates_carry_the_old_object(hooks: Hooks) -> None:
    hooks.create()
    hooks.register("a", "allow")
    hooks.cluster.api.merge(f"/api/v1/namespaces/{hooks.namespace}/pods/p", {"metadata": {"labels": {"a": "b"}}})
    request = hooks.requests()[0]
    assert request["operation"] == "UPDATE"
    assert request["object"]["metadata"]["labels"] == {"a": "b"}
    assert "labels" not in request["oldObject"]["metadata"]


def test_deletions_carry_only_the_old_object(hooks: Hooks) -> None:
    path = f"/api/v1/namespaces/{hooks.namespace}/configmaps"
    hooks.cluster.api.create(path, {"metadata": {"name": "m"}})
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}
    hooks.register("a", "allow", kind=VALIDATING, rules=[rule])
    hooks.cluster.api.delete(f"{path}/m")
    request = hooks.requests()[0]
    assert (request["operation"], request["object"], request["oldObject"]["metadata"]["name"]) == ("DELETE", None, "m")


def test_denials_say_who_denied_and_why(hooks: Hooks) -> None:
    hooks.register("a", "deny")
    message = 'admission webhook "deny.hooks.test" denied the request: no'
    assert hooks.refused() == (409, "Conflict", message)


def test_denials_without_words(hooks: Hooks) -> None:
    hooks.register("a", "deny-silently", kind=VALIDATING)
    message = 'admission webhook "deny-silently.hooks.test" denied the request without explanation'
    assert hooks.refused() == (400, "", message)


def test_webhooks_behind_a_service_are_called_at_its_ready_endpoints(hooks: Hooks) -> None:
    _serve(hooks, ready=True)
    hooks.configure("a", {"name": "a.hooks.test", "clientConfig": hooks.service("hooks", "count")})
    assert hooks.create()["metadata"]["labels"] == {"counted": "1"}


def test_a_service_without_ready_endpoints(hooks: Hooks) -> None:
    _serve(hooks, ready=False)
    hooks.configure("a", {"name": "a.hooks.test", "clientConfig": hooks.service("hooks", "allow")})
    url = f"https://hooks.{hooks.namespace}.svc:8443/allow?timeout=10s"
    why = f'failed to call webhook: Post "{url}": no endpoints available for service "hooks"'
    message = f'Internal error occurred: failed calling webhook "a.hooks.test": {why}'
    assert hooks.refused() == (500, "InternalError", message)


def test_a_service_that_is_not_there(hooks: Hooks) -> None:
    hooks.configure("a", {"name": "a.hooks.test", "clientConfig": hooks.service("nobody", "allow")})
    code, reason, message = hooks.refused()
    assert (code, reason) == (500, "InternalError")
    assert message.endswith('service "nobody" not found')


def test_a_server_with_a_certificate_of_another_authority_is_not_trusted(hooks: Hooks) -> None:
    stranger = base64.b64encode(Authority.create("stranger").bundle).decode()
    hooks.configure("a", {"name": "a.hooks.test", "clientConfig": {**hooks.client("allow"), "caBundle": stranger}})
    code, _, message = hooks.refused()
    assert code == 500
    assert "tls: failed to verify certificate" in message


def test_a_webhook_that_hangs_fails_the_request_in_its_time(hooks: Hooks) -> None:
    hooks.register("a", "hang", timeout=1)
    begun = time.monotonic()
    code, reason, message = hooks.refused()
    assert time.monotonic() - begun < 10
    assert (code, reason) == (500, "InternalError")
    assert message.startswith(
        'Internal error occurred: failed calling webhook "hang.hooks.test": failed to call webhook:'
    )
    assert message.endswith("context deadline exceeded")


def test_a_webhook_that_may_fail_and_hangs_is_passed_over(hooks: Hooks) -> None:
    hooks.register("a", "hang", timeout=1, failurePolicy="Ignore")
    hooks.create()


BAD_ANSWERS = {
    "garbage": "failed to call webhook",
    "broken": "failed to call webhook",
    "absent": "received invalid webhook response: webhook response was absent",
    "wrong-uid": "received invalid webhook response: expected response.uid=",
    "old-version": "",
    "patch-without-type": "webhook returned response.patch but not response.patchType",
    "patch-undecodable": "received undecodable patch in webhook response",
}


@pytest.mark.parametrize("path", sorted(BAD_ANSWERS))
def test_nonsense_is_a_failure(hooks: Hooks, path: str) -> None:
    hooks.register("a", path)
    code, reason, message = hooks.refused()
    assert (code, reason) == (500, "InternalError")
    assert BAD_ANSWERS[path] in message
    assert message.startswith(f'Internal error occurred: failed calling webhook "{path}.hooks.test": ')


@pytest.mark.parametrize("path", sorted(BAD_ANSWERS))
def test_nonsense_of_a_webhook_that_may_fail_is_passed_over(hooks: Hooks, path: str) -> None:
    hooks.register("a", path, failurePolicy="Ignore")
    hooks.create()


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_a_patch_that_does_not_apply_always_fails(hooks: Hooks, policy: str) -> None:
    hooks.register("a", "patch-misses", failurePolicy=policy)
    code, reason, _ = hooks.refused()
    assert (code, reason) == (500, "InternalError")


def test_a_validating_webhook_may_not_patch(hooks: Hooks) -> None:
    hooks.register("a", "patch-empty", kind=VALIDATING)
    assert "validating webhook may not return response.patch" in hooks.refused()[2]


@pytest.mark.kubectl
def test_warnings_reach_the_client(hooks: Hooks) -> None:
    hooks.register("a", "warn")
    manifest = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": hooks.namespace},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
    )
    printed = hooks.cluster.kubectl("create", "-f", "-", input=manifest, check=False)
    assert "Warning: beware of the dog" in printed


def test_selectors_and_conditions_choose(hooks: Hooks) -> None:
    wanted = {"matchExpressions": [{"key": "slice", "operator": "In", "values": ["yes"]}]}
    conditions = [
        {"name": "small", "expression": "size(object.spec.containers) < 3"},
        {"name": "new", "expression": "request.operation == 'CREATE' && !has(oldObject.metadata) || true"},
    ]
    hooks.register("a", "label=by=selector", objectSelector=wanted)
    hooks.register("b", "label=cond=yes", matchConditions=conditions)
    never = [{"name": "never", "expression": "object.metadata.name.startsWith('q')"}]
    hooks.register("c", "deny", matchConditions=never)
    assert hooks.create("one")["metadata"]["labels"] == {"cond": "yes"}
    chosen = hooks.create("two", labels={"slice": "yes"})["metadata"]["labels"]
    assert chosen == {"slice": "yes", "by": "selector", "cond": "yes"}


def test_a_condition_that_cannot_be_evaluated_refuses_or_passes_over(hooks: Hooks) -> None:
    conditions = [{"name": "missing", "expression": "object.metadata.labels.none == 'x'"}]
    hooks.register("a", "label=x=y", matchConditions=conditions, failurePolicy="Ignore")
    assert "labels" not in hooks.create("one")["metadata"]
    hooks.register("b", "label=x=y", matchConditions=conditions)
    code, reason, message = hooks.refused("two")
    assert (code, reason) == (403, "Forbidden")
    assert "no such key" in message


def test_webhooks_are_never_asked_about_webhooks(hooks: Hooks) -> None:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "scope": "Cluster"}
    hooks.configure(
        "a",
        {**hooks.hook("deny"), "rules": [rule], "namespaceSelector": {}, "objectSelector": {"matchLabels": {"a": "b"}}},
    )
    hooks.configure("b", {**hooks.hook("allow"), "rules": [rule]})
    assert hooks.requests() == []


def test_bindings_are_shown_as_bindings(hooks: Hooks) -> None:
    hooks.create()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    hooks.register("a", "deny", kind=VALIDATING, rules=[rule])
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    path = f"/api/v1/namespaces/{hooks.namespace}/pods/p/binding"
    code, _ = hooks.send("POST", path, {"metadata": {"name": "p"}, "target": target})
    assert code == 409
    request = hooks.requests()[0]
    assert (request["kind"]["kind"], request["resource"]["resource"], request["subResource"]) == (
        "Binding",
        "pods",
        "binding",
    )
    assert request["object"]["target"]["name"] == "n"


def _serve(hooks: Hooks, *, ready: bool) -> None:
    address = SERVICE_ADDRESS if hooks.cluster.kind == "real" else "127.0.0.1"
    home = f"/api/v1/namespaces/{hooks.namespace}/services"
    ports = [{"name": "https", "port": 8443, "targetPort": hooks.port}]
    hooks.cluster.api.create(home, {"metadata": {"name": "hooks"}, "spec": {"ports": ports}})
    hooks.cluster.api.create(
        f"/apis/discovery.k8s.io/v1/namespaces/{hooks.namespace}/endpointslices",
        {
            "metadata": {"name": "hooks", "labels": {"kubernetes.io/service-name": "hooks"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}],
            "ports": [{"name": "https", "port": hooks.port, "protocol": "TCP"}],
        },
    )
    if hooks.cluster.kind == "real":
        time.sleep(0.4)
