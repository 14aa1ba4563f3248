"""What can go wrong between us and a Kubernetes API, as one tree of exceptions.

ClusterError
├── Unreachable          no answer: refused, reset, timed out on our side, bad TLS
├── ConfigError          a kubeconfig or service-account folder that cannot be used
└── ApiError             the server answered with a Status (code, reason, message, details)
    ├── BadRequest       400
    ├── Unauthorized     401
    ├── Forbidden        403
    ├── NotFound         404
    ├── MethodNotAllowed 405
    ├── Conflict         409  the object changed, or a precondition failed
    │   └── AlreadyExists
    ├── Gone             410  a resourceVersion or continue token is too old: list again
    ├── Invalid          422
    ├── TooManyRequests  429  also: an eviction that a disruption budget forbids
    └── ServerError      5xx
        └── Timeout      504
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class ClusterError(Exception):
    """Base of everything that talking to a cluster can raise."""


class Unreachable(ClusterError):
    """The server did not answer."""


class ConfigError(ClusterError):
    """The settings that say how to reach the cluster are missing or wrong."""


class ApiError(ClusterError):
    """The server answered with an error Status."""

    def __init__(
        self,
        code: int,
        reason: str = "",
        message: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message or reason or f"HTTP {code}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after


class BadRequest(ApiError):
    pass


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class MethodNotAllowed(ApiError):
    pass


class Conflict(ApiError):
    pass


class AlreadyExists(Conflict):
    pass


class Gone(ApiError):
    pass


class Invalid(ApiError):
    pass


class TooManyRequests(ApiError):
    pass


class ServerError(ApiError):
    pass


class Timeout(ServerError):
    pass


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
    504: Timeout,
}
_FIRST_SERVER_ERROR = 500


def from_status(status: Mapping[str, Any], *, code: int | None = None, retry_after: float | None = None) -> ApiError:
    """The exception for a decoded `Status` object."""
    number = int(status.get("code") or code or _FIRST_SERVER_ERROR)
    reason = str(status.get("reason") or "")
    details = status.get("details") or {}
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = float(details["retryAfterSeconds"])
    return _class_of(number, reason)(number, reason, str(status.get("message") or ""), details, retry_after)


def from_response(code: int, body: bytes | None, headers: Mapping[str, str]) -> ApiError:
    """The exception for an error response; a body that is no Status (a proxy's page) is kept as text."""
    retry_after = seconds(headers.get("retry-after"))
    try:
        status = msgspec.json.decode(body or b"{}")
    except msgspec.DecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return from_status(status, code=code, retry_after=retry_after)
    text = (body or b"").decode(errors="replace").strip()[:500]
    return _class_of(code, "")(code, "", text or f"HTTP {code}", None, retry_after)


def seconds(value: str | None) -> float | None:
    """A Retry-After header in seconds; dates are not used by Kubernetes and count as absent."""
    try:
        return max(0.0, float(value)) if value else None
    except ValueError:
        return None


def _class_of(code: int, reason: str) -> type[ApiError]:
    if reason == "AlreadyExists":
        return AlreadyExists
    if reason == "Expired":
        return Gone
    if code in _BY_CODE:
        return _BY_CODE[code]
    return ServerError if code >= _FIRST_SERVER_ERROR else ApiError
