"""What was answered a moment ago and has not shown up as a pod yet.

All promises stand in one book, an object of the cluster that every replica reads and changes under
compare-and-swap. A promise ends when its pod is seen, or after a lifetime (its pod was refused later on).

Pods that a controller makes have no name yet when they are reviewed, so a promise knows its pod by
namespace, controller, name or generateName, and devices; promises that are alike are interchangeable. Each
pod ends at most one of them: the book remembers, as long as promises of a kind are open, which pods of that
kind were there before or are accounted for (`seen`).

Whoever strikes out a promise because its pod was seen writes down how new his view of the pods was
(`pods`). Nobody decides on an older view, else he would see neither the promise nor the pod.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

MOST_PROMISES = 500
MOST_BYTES = 700_000
"""Below the megabyte that an API server stores in one object."""
_BYTES_PER_POD = 13


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A slice that a promise holds on a grid."""

    gpu: str
    profile: str
    start: int
    size: int


class Promise(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pod that may come with these devices. `steps` is how far it fell."""

    id: str
    at: float
    kind: str
    node: str
    steps: int = 0
    resources: dict[str, int] = {}
    pieces: tuple[Piece, ...] = ()


class Book(msgspec.Struct, frozen=True, omit_defaults=True):
    promises: tuple[Promise, ...] = ()
    seen: dict[str, tuple[str, ...]] = {}
    pods: int = 0
    struck: float = 0.0
    """When a promise was last struck out because its pod was seen."""

    def demands(self, now: float, lifetime: float) -> int:
        """How new a view of the pods must be. After a while all are, and a restored backup counts from less."""
        return self.pods if abs(now - self.struck) <= lifetime else 0

    def encode(self) -> str:
        return msgspec.json.encode(self, order="deterministic").decode()

    @classmethod
    def decode(cls, text: str | None) -> Book:
        """Raises msgspec.DecodeError for what nobody can read."""
        return msgspec.json.decode(text, type=cls) if text else cls()

    def of(self, identity: str) -> Promise | None:
        return next((promise for promise in self.promises if promise.id == identity), None)

    @property
    def full(self) -> bool:
        remembered = sum(map(len, self.seen.values()))
        return len(self.promises) >= MOST_PROMISES or remembered * _BYTES_PER_POD > MOST_BYTES


class Sighting(NamedTuple):
    """A pod that was seen: the version it had, and its time of creation (seconds since 1970)."""

    version: int
    created: float


Sightings = Mapping[str, Mapping[str, Sighting]]
"""By kind of promise, then by pod uid; pods that are gone again count too, for a while."""

CLOCK_SKEW = 30.0
"""How far a pod's time of creation may lie before its promise: clocks differ, and Kubernetes counts whole seconds."""


def kind_of(namespace: str, owner: str, name: str, devices: Mapping[str, int]) -> str:
    """What promises of one kind have in common, short."""
    parts = [namespace, owner, name, *(f"{resource}={count}" for resource, count in sorted(devices.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def brief(uid: str) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:10]


def tidied(book: Book, sightings: Sightings, now: float, lifetime: float) -> Book:
    """The book without promises whose pods were seen, and without those that are too old."""
    seen = dict(book.seen)
    pods, struck = book.demands(now, lifetime), book.struck
    ended: set[str] = set()
    for kind in dict.fromkeys(promise.kind for promise in book.promises):
        open_ones = sorted((p for p in book.promises if p.kind == kind), key=lambda p: (p.at, p.id))
        known = set(seen.get(kind, ()))
        newcomers = sorted(
            (sighting.created, uid, sighting.version)
            for uid, sighting in sightings.get(kind, {}).items()
            if brief(uid) not in known and sighting.created >= open_ones[0].at - CLOCK_SKEW
        )
        for promise, (_, uid, version) in zip(open_ones, newcomers, strict=False):
            ended.add(promise.id)
            seen[kind] = (*seen.get(kind, ()), brief(uid))
            pods, struck = max(pods, version), now
    left = tuple(p for p in book.promises if p.id not in ended and abs(now - p.at) <= lifetime)
    kinds = {promise.kind for promise in left}
    return Book(left, {kind: uids for kind, uids in seen.items() if kind in kinds}, pods, struck)


def added(book: Book, promise: Promise, sightings: Sightings) -> Book:
    """The book with one more promise. Pods of its kind that are there already are not the promised one."""
    seen = book.seen
    if promise.kind not in seen:
        seen = {**seen, promise.kind: tuple(sorted(brief(uid) for uid in sightings.get(promise.kind, {})))}
    return msgspec.structs.replace(book, promises=(*book.promises, promise), seen=seen)


def next_end(book: Book, now: float, lifetime: float) -> float | None:
    """Seconds until the next promise is too old."""
    return min((max(0.0, promise.at + lifetime - now) for promise in book.promises), default=None)
