"""Questions that the server answers and does not store: who am I, may I, whose token is this.

`kubectl auth can-i` and `kubectl auth whoami` ask them; so do components that delegate authorization.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketkube.api import status
from pocketkube.api.access import rbac
from pocketkube.api.access.rbac import Rbac
from pocketkube.api.access.tokens import AUDIENCES, Tokens
from pocketkube.api.registry import Resource
from pocketkube.api.request_attributes import RequestInfo, User

Obj = dict[str, Any]

PLURALS = frozenset(
    {
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
        "tokenreviews",
    }
)


class Reviews:
    """Answers reviews from the same authorizer and the same tokens that requests are judged by."""

    def __init__(self, authorizer: Rbac, tokens: Tokens) -> None:
        self._authorizer = authorizer
        self._tokens = tokens

    def answer(self, resource: Resource, obj: Obj, user: User, namespace: str = "") -> Obj:
        """The review with its status filled in. Expects a decoded object."""
        spec = obj.get("spec") or {}
        match resource.plural:
            case "selfsubjectreviews":
                found: Obj = {"userInfo": user.to_dict()}
            case "tokenreviews":
                found = self._token(spec)
            case "selfsubjectrulesreviews":
                found = self._rules(spec, user)
            case "selfsubjectaccessreviews":
                found = self._access(resource, spec, user)
            case _:
                if resource.namespaced and (spec.get("resourceAttributes") or {}).get("namespace") != namespace:
                    why = "spec.resourceAttributes.namespace: Invalid value: must match metadata.namespace"
                    raise status.bad_request(why)
                found = self._access(resource, spec, _named_user(spec))
        return {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": obj.get("metadata") or {},
            **({"spec": spec} if spec else {}),
            "status": found,
        }

    def _access(self, resource: Resource, spec: Obj, user: User) -> Obj:
        asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (asked is None) == (path is None):
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise status.invalid(resource, "", [status.Cause("spec.resourceAttributes", f"Invalid value: null: {why}")])
        info = _resource_info(asked) if asked is not None else _path_info(path or {})
        reason = self._authorizer.why(user, info)
        if reason is None:
            return {"allowed": False}
        return {"allowed": True, "reason": reason} if reason else {"allowed": True}

    def _rules(self, spec: Obj, user: User) -> Obj:
        if not spec.get("namespace"):
            raise status.bad_request("no namespace on request")
        rules = self._authorizer.rules(user, spec["namespace"])
        return {
            "resourceRules": [rbac.describe(rule) for rule in rules if not rule.urls],
            "nonResourceRules": [rbac.describe(rule) for rule in rules if rule.urls],
            "incomplete": False,
        }

    def _token(self, spec: Obj) -> Obj:
        token = spec.get("token") or ""
        if not token:
            raise status.bad_request("token is required for TokenReview in authentication")
        audiences = spec.get("audiences") or []
        user = self._tokens.review(token, audiences)
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user.to_dict(), "audiences": audiences or list(AUDIENCES)}


def _named_user(spec: Obj) -> User:
    extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
    return User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)


def _resource_info(asked: Mapping[str, Any]) -> RequestInfo:
    return RequestInfo(
        verb=asked.get("verb") or "",
        path="",
        group=asked.get("group") or "",
        version=asked.get("version") or "",
        plural=asked.get("resource") or "*",
        subresource=asked.get("subresource") or "",
        namespace=asked.get("namespace") or "",
        name=asked.get("name") or "",
    )


def _path_info(asked: Mapping[str, Any]) -> RequestInfo:
    return RequestInfo(verb=asked.get("verb") or "", path=asked.get("path") or "")
