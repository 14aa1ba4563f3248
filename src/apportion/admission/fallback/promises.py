"""Promises: devices reserved for pods that were admitted a moment ago and have not been observed yet.

All promises are stored in one object, which every replica reads and changes with compare-and-swap. A promise ends
when its pod is observed, or after a lifetime (if another webhook rejected the pod). Clocks of different machines are
never compared: each reader counts from when it first read a promise.

Pods of a controller have no name while they are reviewed, so a promise identifies its pod by namespace, controller,
name or generateName, and devices; equal promises are interchangeable. Each pod ends at most one of them: as long as
promises of a kind are open, the object records which pods of that kind existed before or have ended one (`seen`).

A replica that removes a promise because it observed the pod records how new its cache of pods was (`pods`). No
replica decides with an older cache, because it would count neither the promise nor the pod.

Promises lock nobody out (T03). One whose pod has not been observed after a few seconds is overdue: from then on it
counts for its own namespace only. A namespace with overdue promises gets only such promises for a while
(`unredeemed`), and only few of them. Within a namespace every promise counts until it ends, so its own pods are always
counted exactly.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from apportion.apis.identities import NodeName, PodUID
from apportion.apis.placements import SlicePlacement

MOST_PROMISES = 500
MOST_OF_A_NAMESPACE = 250
MOST_UNREDEEMED = 50
"""Of a namespace that has overdue promises."""
MOST_NAMESPACES = 500
"""Of which overdue promises are remembered."""
FORGIVE_SECONDS = 600.0
"""How long a namespace is remembered after its last overdue promise."""
MOST_BYTES = 700_000
"""Below the megabyte that an API server stores in one object."""
_BYTES_PER_POD = 13


class Promise(msgspec.Struct, frozen=True, omit_defaults=True):
    """Devices for one pod. `steps` is the number of tiers by which it fell back."""

    id: str
    at: float
    kind: str
    node: NodeName
    steps: int = 0
    resources: dict[str, int] = {}
    pieces: tuple[SlicePlacement, ...] = ()
    namespace: str = ""
    private: bool = False
    """Counts for its own namespace only: it is overdue, or was given to a namespace that had overdue ones."""
    overdue: bool = False


class StoredPromises(msgspec.Struct, frozen=True, omit_defaults=True):
    promises: tuple[Promise, ...] = ()
    seen: dict[str, tuple[str, ...]] = {}
    pods: int = 0
    """The version of the newest pod for which a promise was removed."""
    unredeemed: dict[str, int] = {}
    """Namespaces with overdue promises: how many, expired ones included."""

    def encode(self) -> str:
        return msgspec.json.encode(self, order="deterministic").decode()

    @classmethod
    def decode(cls, text: str | None) -> StoredPromises:
        """Raises msgspec.DecodeError for invalid text."""
        return msgspec.json.decode(text, type=cls) if text else cls()

    def of(self, identity: str) -> Promise | None:
        return next((promise for promise in self.promises if promise.id == identity), None)

    def full_for(self, namespace: str) -> bool:
        """No more promises for this namespace at present. Those of others are in its way only while they are shared."""
        own = [promise.kind for promise in self.promises if promise.namespace == namespace]
        most = MOST_UNREDEEMED if namespace in self.unredeemed else MOST_OF_A_NAMESPACE
        remembered = sum(len(self.seen.get(kind, ())) for kind in set(own)) * _BYTES_PER_POD
        shared = sum(not promise.private for promise in self.promises)
        return len(own) >= most or remembered > MOST_BYTES // 4 or shared >= MOST_PROMISES


class Ages:
    """How long one reader has known the stored promises, by its own monotonic clock.

    Another's promise is thus never found older than it is, whatever the time that was written into it.
    """

    def __init__(self, lifetime: float, clock: Callable[[], float], *, shared: float = 5.0) -> None:
        """`shared`: how long a promise whose pod is not observed counts for other namespaces."""
        self._lifetime = lifetime
        self._shared = min(shared, lifetime)
        self._clock = clock
        self._since: dict[str, float] = {}
        self._pods = (0, 0.0)
        self._unredeemed: dict[str, tuple[int, float]] = {}

    def look(self, stored: StoredPromises) -> None:
        """Call this after every read and write of the promises."""
        now = self._clock()
        self._since = {promise.id: self._since.get(promise.id, now) for promise in stored.promises}
        if stored.pods != self._pods[0]:
            self._pods = (stored.pods, now)
        known = self._unredeemed
        self._unredeemed = {
            namespace: known[namespace] if known.get(namespace, (0, 0.0))[0] == count else (count, now)
            for namespace, count in stored.unredeemed.items()
        }

    def of(self, promise: Promise) -> float:
        now = self._clock()
        return now - self._since.get(promise.id, now)

    def over(self, promise: Promise) -> bool:
        return self.of(promise) > self._lifetime

    def overdue(self, promise: Promise) -> bool:
        return promise.overdue or self.of(promise) > self._shared

    def forgiven(self, namespace: str) -> bool:
        """No promise of the namespace has become overdue for long."""
        now = self._clock()
        return now - self._unredeemed.get(namespace, (0, now))[1] > FORGIVE_SECONDS

    def demand(self, stored: StoredPromises) -> int:
        """How new a view of the pods must be. After a while all are, and a restored backup counts from less."""
        pods, since = self._pods
        return 0 if stored.pods == pods and self._clock() - since > self._lifetime else stored.pods

    def next_end(self, stored: StoredPromises) -> float | None:
        """Seconds until the next promise is overdue or too old."""
        ends = (
            limit - age
            for age, private in ((self.of(promise), promise.private) for promise in stored.promises)
            for limit in ((self._lifetime,) if private else (self._shared, self._lifetime))
            if age <= limit
        )
        return min(ends, default=0.0 if stored.promises else None)


class Sighting(NamedTuple):
    """A pod that was seen: the version it had, and its time of creation (seconds since 1970)."""

    version: int
    created: float


Sightings = Mapping[str, Mapping[PodUID, Sighting]]
"""By kind of promise, then by pod uid; pods that are gone again count too, for a while."""

CLOCK_SKEW = 30.0
"""How far a pod's time of creation may lie before its promise: clocks differ, and Kubernetes counts whole seconds."""


def kind_of(namespace: str, owner: str, name: str, devices: Mapping[str, int]) -> str:
    """What promises of one kind have in common, short."""
    parts = [namespace, owner, name, *(f"{resource}={count}" for resource, count in sorted(devices.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def brief(uid: PodUID) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:10]


def tidied(stored: StoredPromises, sightings: Sightings, ages: Ages) -> StoredPromises:
    """The promises without those whose pods were observed, and without expired ones; overdue ones are marked."""
    seen = dict(stored.seen)
    pods = ages.demand(stored)
    ended: set[str] = set()
    for kind in dict.fromkeys(promise.kind for promise in stored.promises):
        open_ones = sorted((p for p in stored.promises if p.kind == kind), key=lambda p: (p.at, p.id))
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
    left = tuple(_aged(p, ages) for p in stored.promises if p.id not in ended and not ages.over(p))
    kinds = {promise.kind for promise in left}
    return StoredPromises(
        left, {kind: uids for kind, uids in seen.items() if kind in kinds}, pods, _unredeemed(stored, ended, ages)
    )


def _aged(promise: Promise, ages: Ages) -> Promise:
    if promise.overdue or not ages.overdue(promise):
        return promise
    return msgspec.structs.replace(promise, overdue=True, private=True)


def _unredeemed(stored: StoredPromises, ended: set[str], ages: Ages) -> dict[str, int]:
    """How many promises of each namespace are or were overdue; a pod that came late takes its own back."""
    counts = Counter({name: count for name, count in stored.unredeemed.items() if not ages.forgiven(name)})
    for promise in stored.promises:
        if promise.id in ended:
            counts[promise.namespace] -= promise.overdue
        elif not promise.overdue and ages.overdue(promise):
            counts[promise.namespace] += 1
    return dict([(name, count) for name, count in counts.items() if count > 0][-MOST_NAMESPACES:])


def added(stored: StoredPromises, promise: Promise, sightings: Sightings) -> StoredPromises:
    """The promises with one more. Existing pods of its kind are not the promised one."""
    seen = stored.seen
    if promise.kind not in seen:
        seen = {**seen, promise.kind: tuple(sorted(brief(uid) for uid in sightings.get(promise.kind, {})))}
    return msgspec.structs.replace(stored, promises=(*_bounded(stored.promises), promise), seen=seen)


def _bounded(listed: tuple[Promise, ...]) -> tuple[Promise, ...]:
    """Without the oldest that counts for its own namespace only, if there are too many in all."""
    if len(listed) < MOST_PROMISES:
        return listed
    private = next((number for number, promise in enumerate(listed) if promise.private), 0)
    return (*listed[:private], *listed[private + 1 :])
