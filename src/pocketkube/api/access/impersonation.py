"""Acting as somebody else (`kubectl --as`): who asks must be allowed to impersonate every part of the identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from pocketkube.api import status
from pocketkube.api.access.rbac import Rbac
from pocketkube.api.request_attributes import AUTHENTICATED, UNAUTHENTICATED, RequestInfo, User

_PREFIX = "impersonate-"
_ACCOUNT = "system:serviceaccount:"
_ACCOUNT_PARTS = 2


def identity(user: User, headers: Mapping[str, str], authorizer: Rbac | None) -> User:
    """The user that a request shall be judged by; raises ApiStatus if that is not allowed."""
    given = {name.lower(): value for name, value in headers.items() if name.lower().startswith(_PREFIX)}
    if not given:
        return user
    name = given.get("impersonate-user", "")
    if not name:
        raise status.bad_request("requested an identity without impersonating a user")
    groups = tuple(each.strip() for each in given.get("impersonate-group", "").split(",") if each.strip())
    wanted = User(name, groups or _groups_of(name), given.get("impersonate-uid", ""), dict(_extra(given)))
    for info in _questions(wanted, groups):
        if authorizer is not None and not authorizer.allows(user, info):
            raise _forbidden(user, info)
    implied = UNAUTHENTICATED if name == "system:anonymous" else AUTHENTICATED
    if implied in wanted.groups:
        return wanted
    return User(wanted.name, (*wanted.groups, implied), wanted.uid, wanted.extra)


def _groups_of(name: str) -> tuple[str, ...]:
    namespace = _account(name)[0]
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}") if namespace else ()


def _account(name: str) -> tuple[str, str]:
    """Namespace and name of a service account; empty for other users."""
    parts = name.removeprefix(_ACCOUNT).split(":")
    return (parts[0], parts[1]) if name.startswith(_ACCOUNT) and len(parts) == _ACCOUNT_PARTS else ("", "")


def _extra(given: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, value in given.items():
        if name.startswith("impersonate-extra-"):
            yield unquote(name.removeprefix("impersonate-extra-")), tuple(each.strip() for each in value.split(","))


def _questions(wanted: User, groups: tuple[str, ...]) -> Iterator[RequestInfo]:
    """One per part of the identity that was asked for."""
    namespace, account = _account(wanted.name)
    if namespace:
        yield RequestInfo("impersonate", "", "", "v1", "serviceaccounts", "", namespace, account)
    else:
        yield RequestInfo("impersonate", "", "", "v1", "users", "", "", wanted.name)
    for group in groups:
        yield RequestInfo("impersonate", "", "", "v1", "groups", "", "", group)
    if wanted.uid:
        yield RequestInfo("impersonate", "", "authentication.k8s.io", "v1", "uids", "", "", wanted.uid)
    for key, values in wanted.extra.items():
        for value in values:
            yield RequestInfo("impersonate", "", "authentication.k8s.io", "v1", "userextras", key, "", value)


def _forbidden(user: User, info: RequestInfo) -> status.ApiStatus:
    scope = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    plural = f"{info.plural}/{info.subresource}" if info.subresource else info.plural
    why = f'User "{user.name}" cannot impersonate resource "{plural}" in API group "{info.group}" {scope}'
    named = f"{info.plural}.{info.group}" if info.group else info.plural
    details = {"name": info.name, "kind": info.plural} | ({"group": info.group} if info.group else {})
    return status.ApiStatus(403, "Forbidden", f'{named} "{info.name}" is forbidden: {why}', details)
