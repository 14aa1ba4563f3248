"""Lists: which state of a collection a client asks for, and its pages.

A page is cut from one revision; the token names that revision and the last key, so that later pages show
the same state although objects come and go. When the past is gone the token is Expired.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from pocketkube.api import status
from pocketkube.api.storage.selectors import Selection
from pocketkube.api.storage.store import Bucket, Compacted, Future, Key, Store, Stored

_LONGEST_NUMBER = 20  # characters of 64 bits
_EXPIRED_PAGE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects of a collection, and where the rest begins."""

    items: list[Stored]
    revision: int
    token: str = ""
    remaining: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the objects."""
        return sum(len(item.data) for item in self.items)

    def metadata(self, *, custom: bool = False) -> dict[str, object]:
        found: dict[str, object] = {"resourceVersion": str(self.revision)}
        if custom:
            found["continue"] = ""
        if self.token:
            found["continue"] = self.token
            if self.remaining is not None:
                found["remainingItemCount"] = self.remaining
        return found


class _ContinueToken(msgspec.Struct):
    v: str
    rv: int
    start: str


def page(store: Store, bucket: Bucket, namespace: str, selection: Selection, query: Mapping[str, str]) -> Page:
    """The page that a list request asks for."""
    limit = max(0, whole_number(query, "limit"))
    token = query.get("continue", "")
    start: Key | None = None
    if token:
        if query.get("resourceVersion", "") not in ("", "0"):
            raise status.bad_request("specifying resource version is not allowed when using continue")
        revision, start = _read(token)
        revision = store.revision if revision < 0 else revision
        items = _past(store, bucket, namespace, revision, start)
    else:
        revision, items = _state(store, bucket, namespace, query, limit)
    if start is not None:
        items = items[bisect_right([item.key for item in items], start) :]
    if selection:
        name = selection.single_name
        items = [item for item in items if (name is None or item.key.name == name) and selection.matches(item)]
    if not limit or len(items) <= limit:
        return Page(items, revision)
    shown = items[:limit]
    remaining = None if selection else len(items) - limit
    return Page(shown, revision, _write(revision, shown[-1].key), remaining)


def whole_number(query: Mapping[str, str], name: str) -> int:
    """A number of the query, 0 if absent."""
    text = query.get(name, "")
    if not text:
        return 0
    try:
        return int(text[:_LONGEST_NUMBER])
    except ValueError:
        message = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise status.bad_request(message) from None


def parse_revision(text: str) -> int:
    """A resourceVersion of the query; empty counts as 0."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 19:  # noqa: PLR2004  more does not fit into 64 bits
        problem = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise status.bad_request(f"invalid resource version: resourceVersion: {problem}")
    return int(text)


def future(asked: int, current: int) -> status.ApiStatus:
    """The answer to a resourceVersion that does not exist yet."""
    return status.ApiStatus(
        504,
        "Timeout",
        f"Too large resource version: {asked}, current: {current}",
        {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        {"retry-after": "1"},
    )


def _state(
    store: Store, bucket: Bucket, namespace: str, query: Mapping[str, str], limit: int
) -> tuple[int, list[Stored]]:
    text = query.get("resourceVersion", "")
    asked = parse_revision(text)
    how = query.get("resourceVersionMatch", "")
    if how:
        _check_match(how, text)
    exact = how == "Exact" or (not how and limit > 0 and asked > 0)
    if asked > store.revision:
        raise future(asked, store.revision)
    if exact:
        try:
            return asked, store.items_at(bucket, namespace, asked)
        except Compacted:
            raise status.expired("The resourceVersion for the provided list is too old.") from None
    return store.revision, store.items(bucket, namespace)


def _check_match(how: str, revision: str) -> None:
    problem = ""
    if not revision:
        problem = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif how not in ("Exact", "NotOlderThan"):
        problem = f'Unsupported value: "{how}": supported values: "Exact", "NotOlderThan", ""'
    elif how == "Exact" and revision == "0":
        problem = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if problem:
        raise invalid_options("ListOptions", "resourceVersionMatch", problem)


def invalid_options(kind: str, field: str, problem: str) -> status.ApiStatus:
    """Options of a request that contradict each other."""
    reasons = {
        "Forbidden": "FieldValueForbidden",
        "Unsupported value": "FieldValueNotSupported",
        "Required value": "FieldValueRequired",
    }
    reason = reasons.get(problem.partition(":")[0], "FieldValueInvalid")
    return status.ApiStatus(
        422,
        "Invalid",
        f'{kind}.meta.k8s.io "" is invalid: {field}: {problem}',
        {"group": "meta.k8s.io", "kind": kind, "causes": [{"reason": reason, "message": problem, "field": field}]},
    )


def _past(store: Store, bucket: Bucket, namespace: str, revision: int, start: Key) -> list[Stored]:
    try:
        return store.items_at(bucket, namespace, revision)
    except Compacted:
        problem = status.expired(_EXPIRED_PAGE)
        problem.metadata = {"continue": _write(-1, start)}
        raise problem from None
    except Future:
        raise future(revision, store.revision) from None


def _write(revision: int, key: Key) -> str:
    raw = msgspec.json.encode(_ContinueToken("meta.k8s.io/v1", revision, f"{key.namespace}/{key.name}"))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read(token: str) -> tuple[int, Key]:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        value = msgspec.json.decode(raw, type=_ContinueToken)
        namespace, found, name = value.start.partition("/")
        if not found or value.v != "meta.k8s.io/v1":
            raise ValueError(value.start)  # noqa: TRY301
    except ValueError as error:
        raise status.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    return value.rv, Key(namespace, name)
