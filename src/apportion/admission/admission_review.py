"""AdmissionReview v1: what an API server asks, and how it is answered.

The request is validated strictly, since any client that reaches the port can send anything. The object inside
stays as raw bytes until a rule needs it: decoding the part that rules read twice, once to change and once to compare,
costs less than copying.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from apportion.admission import reviewed_object
from apportion.admission.json_diff import Operation
from apportion.apis.errors import InputError
from apportion.cluster.log_text import word

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"


class BadReview(Exception):
    """The body is not a valid AdmissionReview; the text gives the reason."""


class ReviewAnswer(NamedTuple):
    """A review's answer, and what to count it as."""

    body: bytes
    outcome: str


Name = Annotated[str, msgspec.Meta(max_length=253)]
"""The longest name of anything in Kubernetes. Names are logged, and the uid is stored with a promise."""


class GroupKind(msgspec.Struct):
    group: Name = ""
    version: Name = ""
    kind: Name = ""


class GroupResource(msgspec.Struct):
    group: Name = ""
    version: Name = ""
    resource: Name = ""


class Question(msgspec.Struct, rename="camel"):
    """The `request` of a review."""

    uid: Annotated[str, msgspec.Meta(max_length=128)]
    kind: GroupKind
    resource: GroupResource
    operation: Name
    sub_resource: Name = ""
    name: Name = ""
    namespace: Name = ""
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    size: int = 0
    """Of the whole review, in bytes."""

    def new(self) -> dict[str, Any]:
        """What the guard reads of a pod as it would be stored."""
        return self._decoded(self.object, "request.object", reviewed_object.guarded)

    def old(self) -> dict[str, Any]:
        return self._decoded(self.old_object, "request.oldObject", reviewed_object.guarded)

    def changeable(self) -> dict[str, Any]:
        """What mutating rules read of the object as it would be stored; each call decodes a copy of its own."""
        return self._decoded(self.object, "request.object", self._changeable)

    def old_changeable(self) -> dict[str, Any]:
        return self._decoded(self.old_object, "request.oldObject", self._changeable)

    @property
    def is_pod(self) -> bool:
        return (self.kind.group, self.kind.kind) == ("", "Pod")

    @property
    def label(self) -> str:
        """For the log."""
        kind = word(self.kind.kind or "object")
        return f"{kind} {word(f'{self.namespace}/{self.name}')}" if self.name else kind

    def _changeable(self, raw: msgspec.Raw) -> dict[str, Any]:
        return reviewed_object.changeable(raw, pod=self.is_pod)

    def _decoded(self, raw: msgspec.Raw, field: str, decode: Callable[[msgspec.Raw], dict[str, Any]]) -> dict[str, Any]:
        try:
            return decode(raw)
        except msgspec.ValidationError as error:
            raise BadReview(f"{field} is not well-formed: {error}") from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadReview(f"{field} is not JSON: {error}") from None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    request: Question | None = None


_decoder = msgspec.json.Decoder(_Review)
_encode = msgspec.json.Encoder().encode


def parse(body: bytes | bytearray) -> Question:
    try:
        reviewed_object.check_values(body)
        review = _decoder.decode(body)
    except reviewed_object.TooManyValuesError as error:
        raise BadReview(f"the AdmissionReview is too large: {error}") from None
    except msgspec.ValidationError as error:
        raise BadReview(f"the AdmissionReview is not well-formed: {error}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadReview(f"the body is not JSON: {error}") from None
    if review.kind != KIND or review.api_version != API_VERSION:
        raise BadReview(f"expected {KIND} of {API_VERSION}, got {review.kind!r} of {review.api_version!r}")
    if review.request is None or not review.request.uid:
        raise BadReview("the AdmissionReview has no request, or a request without a uid")
    review.request.size = len(body)
    return review.request


def allowed(uid: str, operations: Sequence[Operation] = (), warnings: Sequence[str] = ()) -> ReviewAnswer:
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(_encode(list(operations))).decode()
    if warnings:
        response["warnings"] = list(warnings)
    return ReviewAnswer(_encoded(response), "patched" if operations else "unchanged")


def rejected(uid: str, error: InputError) -> ReviewAnswer:
    """A rejection: a message for people, and its parts for programs."""
    cause = {"reason": error.code, "field": error.field, "message": error.fix}
    status = {
        "status": "Failure",
        "code": 400,
        "reason": "BadRequest",
        "message": str(error),
        "details": {"causes": [cause]},
    }
    return ReviewAnswer(_encoded({"uid": uid, "allowed": False, "status": status}), "rejected")


def later(uid: str, message: str, seconds: int = 1) -> ReviewAnswer:
    """No decision: the caller should retry. Client libraries do so automatically."""
    status = {
        "status": "Failure",
        "code": 429,
        "reason": "TooManyRequests",
        "message": message,
        "details": {"retryAfterSeconds": seconds},
    }
    return ReviewAnswer(_encoded({"uid": uid, "allowed": False, "status": status}), "overloaded")


def _encoded(response: dict[str, Any]) -> bytes:
    return _encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
