"""What was answered a moment ago and has not shown up as a pod yet.

All promises stand in one book, an object of the cluster that every replica reads and changes under
compare-and-swap. A promise ends when its pod is seen, or after a lifetime (its pod was refused later on).
Clocks of different machines are never compared for that: each reader counts from when it first saw a promise.

Pods that a controller makes have no name yet when they are reviewed, so a promise knows its pod by
namespace, controller, name or generateName, and devices; promises that are alike are interchangeable. Each
pod ends at most one of them: the book remembers, as long as promises of a kind are open, which pods of that
kind were there before or are accounted for (`seen`).

Whoever strikes out a promise because its pod was seen writes down how new his view of the pods was
(`pods`). Nobody decides on an older view, else he would see neither the promise nor the pod.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from apportion.core.facts import SlicePlacement

MOST_PROMISES = 500
MOST_BYTES = 700_000
"""Below the megabyte that an API server stores in one object."""
_BYTES_PER_POD = 13


class Promise(msgspec.Struct, frozen=True, omit_defaults=True):
    """One pod that may come with these devices. `steps` is how far it fell."""

    id: str
    at: float
    kind: str
    node: str
    steps: int = 0
    resources: dict[str, int] = {}
    pieces: tuple[SlicePlacement, ...] = ()


class Book(msgspec.Struct, frozen=True, omit_defaults=True):
    promises: tuple[Promise, ...] = ()
    seen: dict[str, tuple[str, ...]] = {}
    pods: int = 0
    """The version of the newest pod for which a promise was struck out."""

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


class Ages:
    """How long one reader has known what is in the book, by its own clock that only grows.

    Another's promise is thus never found older than it is, whatever the time that was written into it.
    """

    def __init__(self, lifetime: float, clock: Callable[[], float]) -> None:
        self._lifetime = lifetime
        self._clock = clock
        self._since: dict[str, float] = {}
        self._pods = (0, 0.0)

    def look(self, book: Book) -> None:
        """Call this with every book that was read or written."""
        now = self._clock()
        self._since = {promise.id: self._since.get(promise.id, now) for promise in book.promises}
        if book.pods != self._pods[0]:
            self._pods = (book.pods, now)

    def over(self, promise: Promise) -> bool:
        now = self._clock()
        return now - self._since.get(promise.id, now) > self._lifetime

    def demand(self, book: Book) -> int:
        """How new a view of the pods must be. After a while all are, and a restored backup counts from less."""
        pods, since = self._pods
        return 0 if book.pods == pods and self._clock() - since > self._lifetime else book.pods

    def next_end(self, book: Book) -> float | None:
        """Seconds until the next promise is too old."""
        now = self._clock()
        ends = (self._since.get(promise.id, now) + self._lifetime - now for promise in book.promises)
        return min((max(0.0, end) for end in ends), default=None)


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


def tidied(book: Book, sightings: Sightings, ages: Ages) -> Book:
    """The book without promises whose pods were seen, and without those that are too old."""
    seen = dict(book.seen)
    pods = ages.demand(book)
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
            pods = max(pods, version)
    left = tuple(p for p in book.promises if p.id not in ended and not ages.over(p))
    kinds = {promise.kind for promise in left}
    return Book(left, {kind: uids for kind, uids in seen.items() if kind in kinds}, pods)


def added(book: Book, promise: Promise, sightings: Sightings) -> Book:
    """The book with one more promise. Pods of its kind that are there already are not the promised one."""
    seen = book.seen
    if promise.kind not in seen:
        seen = {**seen, promise.kind: tuple(sorted(brief(uid) for uid in sightings.get(promise.kind, {})))}
    return msgspec.structs.replace(book, promises=(*book.promises, promise), seen=seen)
