"""Errors as Kubernetes words them: every failure inside the server is an `ApiStatus`.

The constructors below know code, reason, wording and details of kube-apiserver's own errors, so that
clients which match on any of these behave as they do on a real cluster. `Resource` arguments are
duck-typed (`group`, `plural`, `kind`) because errors do not depend on the registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from pocketkube.api import limits


class Named(Protocol):
    """What an error must know about a resource."""

    @property
    def group(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def kind(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong with one field: `spec.replicas`, `FieldValueInvalid`, why."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def bounded(causes: Iterable[Cause]) -> list[Cause]:
    """The first causes, and one that says so if there are more: a large object can have thousands."""
    found: list[Cause] = []
    text_left = limits.MAX_CAUSES_TEXT
    for cause in causes:
        text_left -= len(cause.field) + len(cause.message)
        if len(found) >= limits.MAX_CAUSES or (found and text_left < 0):
            return [*found, Cause("<nil>", f"Too many: {len(found)} problems are shown", "FieldValueTooMany")]
        found.append(cause)
    return found


class ApiStatus(Exception):
    """An answer other than success, as the `Status` object that clients read."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}
        self.metadata: dict[str, Any] = {}

    def to_dict(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    def encode(self) -> bytes:
        return msgspec.json.encode(self.to_dict()) + b"\n"


def success(resource: Named, name: str, uid: str = "", *, code: int = 200) -> dict[str, Any]:
    """The Status that a deletion answers when the object is gone at once."""
    details = _details(resource, name)
    if uid:
        details["uid"] = uid
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    } | ({"code": code} if code != 200 else {})  # noqa: PLR2004


def qualified(resource: Named) -> str:
    """`deployments.apps`, or `pods` for the core group."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def not_found(resource: Named, name: str) -> ApiStatus:
    return ApiStatus(404, "NotFound", f'{qualified(resource)} "{name}" not found', _details(resource, name))


def unknown_path() -> ApiStatus:
    return ApiStatus(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Named, name: str) -> ApiStatus:
    return ApiStatus(409, "AlreadyExists", f'{qualified(resource)} "{name}" already exists', _details(resource, name))


def conflict(resource: Named, name: str, why: str | None = None) -> ApiStatus:
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}'
    return ApiStatus(409, "Conflict", message, _details(resource, name))


def invalid(resource: Named, name: str, causes: Sequence[Cause]) -> ApiStatus:
    """Fields that are wrong; the message lists them as kube-apiserver does."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    unique = list(dict.fromkeys(str(cause) for cause in causes))
    listed = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    if resource.kind:
        details["kind"] = resource.kind
    details["causes"] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field or "<nil>"} for cause in causes
    ]
    return ApiStatus(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', details)


def bad_request(message: str, details: dict[str, Any] | None = None) -> ApiStatus:
    return ApiStatus(400, "BadRequest", message, details)


def unauthorized() -> ApiStatus:
    return ApiStatus(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Named, name: str, why: str) -> ApiStatus:
    subject = f'{qualified(resource)} "{name}"' if name else qualified(resource)
    message = f"{subject} is forbidden: {why}"
    return ApiStatus(403, "Forbidden", message, _details(resource, name))


def method_not_allowed() -> ApiStatus:
    return ApiStatus(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_acceptable(accepted: Sequence[str]) -> ApiStatus:
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(accepted)}"
    return ApiStatus(406, "NotAcceptable", message, {})


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> ApiStatus:
    return ApiStatus(410, "Expired", message)


def too_old(asked: int, oldest: int) -> ApiStatus:
    return ApiStatus(410, "Expired", f"too old resource version: {asked} ({oldest})")


def too_large(limit: int) -> ApiStatus:
    return ApiStatus(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def too_many_values(limit: int) -> ApiStatus:
    return ApiStatus(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit} values")


def object_too_large() -> ApiStatus:
    """What etcd answers, as kube-apiserver passes it on."""
    return ApiStatus(500, "", "etcdserver: request is too large")


def store_full() -> ApiStatus:
    return ApiStatus(500, "", "etcdserver: mvcc: database space exceeded")


def unsupported_media_type(accepted: Sequence[str]) -> ApiStatus:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiStatus(415, "UnsupportedMediaType", message)


def too_many_requests(message: str, details: dict[str, Any] | None = None, retry_after: int = 0) -> ApiStatus:
    headers = {"retry-after": str(retry_after)} if retry_after else {}
    return ApiStatus(429, "TooManyRequests", message, details, headers)


def timeout(message: str) -> ApiStatus:
    return ApiStatus(504, "Timeout", message, {})


def body_timeout() -> ApiStatus:
    return ApiStatus(408, "Timeout", "Timeout: the body of the request was not sent in time", {})


def internal(message: str) -> ApiStatus:
    return ApiStatus(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )


def _details(resource: Named, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    return details
