"""Bearer tokens: fixed ones of administrators, and signed ones of service accounts.

A service-account token is a JSON Web Token with the claims of a real cluster, signed with a key that
lives as long as the server. It is good until it expires, or until its service account or the pod that it
is bound to is gone or has been replaced by another one of the same name.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from pocketkube.api import status
from pocketkube.api.registry import Registry
from pocketkube.api.request_attributes import AUTHENTICATED, User
from pocketkube.api.storage.metadata import Clock, utc_now
from pocketkube.api.storage.store import Bucket, Store

ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCES = (ISSUER,)
SHORTEST_SECONDS = 600
LONGEST_SECONDS = 2**32
DEFAULT_SECONDS = 3600

_ACCOUNTS = Bucket("", "serviceaccounts")
_PRIVATE = "kubernetes.io"
_HEADER = {"alg": "HS256", "typ": "JWT"}
_REMEMBERED = 4096

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bound:
    """The object that a token is bound to: a pod, a secret or a node."""

    kind: str
    name: str
    uid: str

    @property
    def bucket(self) -> Bucket:
        return Bucket("", f"{self.kind.lower()}s")


@dataclass(frozen=True, slots=True)
class Issued:
    token: str
    expires: datetime


class Tokens:
    """Issues tokens and identifies their users."""

    def __init__(self, store: Store, *, clock: Clock = utc_now, key: bytes | None = None) -> None:
        self._store = store
        self._clock = clock
        self._key = key or secrets.token_bytes(32)
        self._fixed: dict[str, User] = {}
        self._claims: dict[str, Obj] = {}  # tokens whose signature was checked

    def add_fixed(self, token: str, user: User) -> None:
        """Accept a token for a user as long as the server lives."""
        self._fixed[token] = user

    def authenticate(self, token: str) -> User | None:
        """The user of a token, or None if it is not, or no longer, valid."""
        return self.review(token, ())

    def review(self, token: str, audiences: Sequence[str]) -> User | None:
        """The same for a token that must be meant for one of some audiences (none: this server)."""
        for known, user in self._fixed.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return user
        claims = self._read(token)
        if claims is None or not set(audiences or AUDIENCES) & set(claims["aud"]):
            return None
        now = self._clock().timestamp()
        if not claims["nbf"] <= now + 1 or claims["exp"] <= now:
            return None
        return self._user(claims)

    def issue(
        self,
        namespace: str,
        account: str,
        *,
        seconds: int = DEFAULT_SECONDS,
        audiences: Sequence[str] = (),
        bound: Bound | None = None,
        node: tuple[str, str] | None = None,
    ) -> Issued:
        """A new token of a service account, which must exist."""
        stored = self._store.get(_ACCOUNTS, namespace, account)
        if stored is None:
            raise LookupError(f"service account {namespace}/{account}")
        now = int(self._clock().timestamp())
        private: Obj = {"namespace": namespace, "serviceaccount": {"name": account, "uid": stored.uid}}
        if bound is not None:
            private[bound.kind.lower()] = {"name": bound.name, "uid": bound.uid}
        if node is not None:
            private["node"] = {"name": node[0], "uid": node[1]}
        claims = {
            "aud": list(audiences or AUDIENCES),
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            _PRIVATE: private,
            "nbf": now,
            "sub": user_name(namespace, account),
        }
        return Issued(self._sign(claims), datetime.fromtimestamp(now + seconds, UTC))

    def user_of_pod(self, namespace: str, account: str, pod: Bound) -> User | None:
        """Who a pod is for this server; None if the pod is gone. Raises LookupError without its service account."""
        stored = self._store.get(pod.bucket, namespace, pod.name)
        node = self._node((stored.decode().get("spec") or {}).get("nodeName") or "") if stored else None
        return self.authenticate(self.issue(namespace, account, bound=pod, node=node).token)

    async def request(self, registry: Registry, namespace: str, account: str, body: Mapping[str, Any]) -> Obj:
        """Answers a TokenRequest of the `token` subresource of a service account."""
        accounts = registry.find("", "v1", "serviceaccounts")
        assert accounts is not None
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds", DEFAULT_SECONDS)
        if not isinstance(seconds, int) or not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
            raise _invalid_lifetime(seconds)
        reference = spec.get("boundObjectRef")
        bound, node = self._bound(namespace, account, reference) if reference else (None, None)
        audiences = [str(each) for each in spec.get("audiences") or ()]
        try:
            issued = self.issue(namespace, account, seconds=seconds, audiences=audiences, bound=bound, node=node)
        except LookupError:
            raise status.not_found(accounts, account) from None
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": account, "namespace": namespace},
            "spec": {
                "audiences": audiences or list(AUDIENCES),
                "expirationSeconds": seconds,
                "boundObjectRef": reference or None,
            },
            "status": {"token": issued.token, "expirationTimestamp": issued.expires.strftime("%Y-%m-%dT%H:%M:%SZ")},
        }

    def _bound(self, namespace: str, account: str, reference: Obj) -> tuple[Bound, tuple[str, str] | None]:
        kind, name = str(reference.get("kind") or ""), str(reference.get("name") or "")
        if kind not in ("Pod", "Secret", "Node"):
            raise status.bad_request(f"cannot bind token for serviceaccount {account!r} to type {kind}")
        found = Bound(kind, name, str(reference.get("uid") or ""))
        stored = self._store.get(found.bucket, "" if kind == "Node" else namespace, name)
        if stored is None:
            details = {"name": name, "kind": found.bucket.plural}
            raise status.ApiStatus(404, "NotFound", f'{found.bucket.plural} "{name}" not found', details)
        if found.uid and found.uid != stored.uid:
            why = f"the UID in the bound object reference ({found.uid}) does not match the UID in record. "
            message = f'Operation cannot be fulfilled on {found.bucket.plural} "{name}": {why}'
            message += "The object might have been deleted and then recreated"
            raise status.ApiStatus(409, "Conflict", message, {"name": name, "kind": found.bucket.plural})
        node = None
        if kind == "Pod":
            pod_spec = stored.decode().get("spec") or {}
            if pod_spec.get("serviceAccountName") != account:
                why = "to pod running with different serviceaccount name."
                raise status.bad_request(f"cannot bind token for serviceaccount {account!r} {why}")
            node = self._node(pod_spec.get("nodeName") or "")
        return Bound(kind, name, stored.uid), node

    def _node(self, name: str) -> tuple[str, str] | None:
        stored = self._store.get(Bucket("", "nodes"), "", name) if name else None
        return (name, stored.uid) if stored else None

    def _user(self, claims: Obj) -> User | None:
        private = claims[_PRIVATE]
        namespace, account = private["namespace"], private["serviceaccount"]
        stored = self._store.get(_ACCOUNTS, namespace, account["name"])
        if stored is None or stored.uid != account["uid"]:
            return None
        extra: dict[str, tuple[str, ...]] = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
        for kind in ("Pod", "Secret", "Node"):
            if (given := private.get(kind.lower())) is None:
                continue
            bound = Bound(kind, given["name"], given["uid"])
            if not (kind == "Node" and "pod" in private) and not self._is_there(namespace, bound):
                return None
            if kind != "Secret":
                extra[f"authentication.kubernetes.io/{kind.lower()}-name"] = (bound.name,)
                extra[f"authentication.kubernetes.io/{kind.lower()}-uid"] = (bound.uid,)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        return User(user_name(namespace, account["name"]), groups, stored.uid, extra)

    def _is_there(self, namespace: str, bound: Bound) -> bool:
        stored = self._store.get(bound.bucket, "" if bound.kind == "Node" else namespace, bound.name)
        return stored is not None and stored.uid == bound.uid

    # The format: header, claims and signature in URL-safe base64

    def _sign(self, claims: Obj) -> str:
        text = f"{_encode(msgspec.json.encode(_HEADER))}.{_encode(msgspec.json.encode(claims))}"
        return f"{text}.{_encode(self._signature(text))}"

    def _read(self, token: str) -> Obj | None:
        known = self._claims.get(token)
        if known is not None:
            return known
        text, _, signature = token.rpartition(".")
        try:
            if not hmac.compare_digest(_decode(signature), self._signature(text)):
                return None
            claims: Obj = msgspec.json.decode(_decode(text.rpartition(".")[2]), type=dict[str, Any])
        except (ValueError, msgspec.DecodeError):
            return None
        if len(self._claims) >= _REMEMBERED:
            self._claims.clear()
        self._claims[token] = claims
        return claims

    def _signature(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(), hashlib.sha256)


def user_name(namespace: str, account: str) -> str:
    return f"system:serviceaccount:{namespace}:{account}"


def _invalid_lifetime(seconds: Any) -> status.ApiStatus:
    too_long = isinstance(seconds, int) and seconds > LONGEST_SECONDS
    why = f"may not specify a duration {'larger than 2^32 seconds' if too_long else 'less than 10 minutes'}"
    cause = status.Cause("spec.expirationSeconds", f"Invalid value: {seconds}: {why}")
    message = f'TokenRequest.authentication.k8s.io "" is invalid: {cause}'
    causes = [{"reason": cause.reason, "message": cause.message, "field": cause.field}]
    details = {"group": "authentication.k8s.io", "kind": "TokenRequest", "causes": causes}
    return status.ApiStatus(422, "Invalid", message, details)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
