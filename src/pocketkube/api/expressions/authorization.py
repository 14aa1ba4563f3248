"""`authorizer` in CEL: asks whether the user of a request, or a service account, may do something else, too.

authorizer.group('apps').resource('deployments').namespace('n').check('create').allowed()
authorizer.serviceAccount('n', 'a').path('/healthz').check('get').allowed()
authorizer.requestResource.check('custom-verb').allowed()
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pocketkube.api.expressions.functions import EvaluationError, Function, no_overload
from pocketkube.api.request_attributes import Attributes, RequestInfo, User
from pocketkube.api.validation import name_rules


class Permissions(Protocol):
    """Who decides."""

    def why(self, user: User, info: RequestInfo) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Authorizer:
    permissions: Permissions | None
    user: User
    request: RequestInfo | None = None

    @classmethod
    def of(cls, permissions: Permissions | None, attrs: Attributes) -> Authorizer:
        resource = attrs.resource
        asked = RequestInfo(
            "", "", resource.group, resource.version, resource.plural, attrs.subresource, attrs.namespace, attrs.name
        )
        return cls(permissions, attrs.user, asked)


@dataclass(frozen=True, slots=True)
class GroupCheck:
    authorizer: Authorizer
    group: str


@dataclass(frozen=True, slots=True)
class PathCheck:
    authorizer: Authorizer
    path: str


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    authorizer: Authorizer
    info: RequestInfo


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str


def field(value: Any, name: str) -> Any:
    """`authorizer.requestResource`, the only field of these values."""
    if isinstance(value, Authorizer) and name == "requestResource" and value.request is not None:
        return ResourceCheck(value, value.request)
    raise EvaluationError("no such overload")


def _method(name: str, kind: type | tuple[type, ...], function: Function) -> Function:
    def guarded(target: Any, *arguments: Any) -> Any:
        if not isinstance(target, kind) or not all(isinstance(each, str) for each in arguments):
            raise no_overload(name, target, *arguments)
        return function(target, *arguments)

    return guarded


def _service_account(authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    if list(name_rules.dns_subdomain(name)):
        raise EvaluationError("Invalid service account name")
    if list(name_rules.dns_label(namespace)):
        raise EvaluationError("Invalid service account namespace")
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return Authorizer(authorizer.permissions, User(f"system:serviceaccount:{namespace}:{name}", groups))


def _path(authorizer: Authorizer, path: str) -> PathCheck:
    if not path.strip():
        raise EvaluationError("path must not be empty")
    return PathCheck(authorizer, path)


def _resource(check: GroupCheck, plural: str) -> ResourceCheck:
    if not plural.strip():
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(check.authorizer, RequestInfo("", "", check.group, "*", plural))


def _with(name: str) -> Callable[[ResourceCheck, str], ResourceCheck]:
    def narrowed(check: ResourceCheck, value: str) -> ResourceCheck:
        return ResourceCheck(check.authorizer, dataclasses.replace(check.info, **{name: value}))

    return narrowed


def _check(check: PathCheck | ResourceCheck, verb: str) -> Decision:
    authorizer = check.authorizer
    info = RequestInfo("", check.path) if isinstance(check, PathCheck) else check.info
    info = dataclasses.replace(info, verb=verb)
    reason = authorizer.permissions.why(authorizer.user, info) if authorizer.permissions is not None else ""
    return Decision(reason is not None, reason or "")


METHODS: dict[tuple[str, int], Function] = {
    ("group", 2): _method("group", Authorizer, GroupCheck),
    ("path", 2): _method("path", Authorizer, _path),
    ("serviceAccount", 3): _method("serviceAccount", Authorizer, _service_account),
    ("resource", 2): _method("resource", GroupCheck, _resource),
    ("subresource", 2): _method("subresource", ResourceCheck, _with("subresource")),
    ("namespace", 2): _method("namespace", ResourceCheck, _with("namespace")),
    ("name", 2): _method("name", ResourceCheck, _with("name")),
    # RBAC looks at no selectors.
    ("fieldSelector", 2): _method("fieldSelector", ResourceCheck, lambda check, _selector: check),
    ("labelSelector", 2): _method("labelSelector", ResourceCheck, lambda check, _selector: check),
    ("check", 2): _method("check", (PathCheck, ResourceCheck), _check),
    ("allowed", 1): _method("allowed", Decision, lambda decision: decision.allowed),
    ("reason", 1): _method("reason", Decision, lambda decision: decision.reason),
    ("errored", 1): _method("errored", Decision, lambda _decision: False),
    ("error", 1): _method("error", Decision, lambda _decision: ""),
}
VALUES = (Authorizer, GroupCheck, PathCheck, ResourceCheck, Decision)
