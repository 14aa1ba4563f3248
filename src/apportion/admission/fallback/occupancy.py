"""The fleet as fallback counts it: what pods hold, what pods without a node will hold, and promises.

The view's fleet has everything that bound pods hold. On top of it pods that are not bound yet, gated ones too, are
assumed to be on nodes they could run on, oldest first; one that fits nowhere holds nothing. Promises come last.
Only pods that request MIG devices are assumed, because only they compete for them.

Assumptions are in the fleet as long as `assumed` lasts, and nothing may await there. The assumed node of each pod is
cached, and computed again only when the fleet has changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from apportion.admission.fallback.promises import Promise
from apportion.apis import names
from apportion.apis.identities import NodeName, PodUID
from apportion.apis.placements import SlicePlacement
from apportion.apis.request import Request
from apportion.core import group_decision
from apportion.core.cluster_changes import Happened
from apportion.core.filters import nodes as node_rules
from apportion.core.fleet_facts import Reservation
from apportion.core.policies import FIRST_FIT, FRAGMENTATION, Policy
from apportion.core.statement import Statement
from apportion.view.view import View
from apportion.view.waiting import WaitingPod


class Occupancy:
    """Place pods and keep promises inside `assumed` only."""

    def __init__(self, view: View) -> None:
        self.fleet = view.fleet
        self._changes = view.changes.reader()
        self._plain, self._graded = Policy(FIRST_FIT), Policy(FRAGMENTATION)
        self._unbound: dict[PodUID, tuple[tuple[str, int], Request]] = {}  # age, request
        self._assumed: dict[PodUID, Statement] = {}  # unbound pods that have a place, in the order of their age
        self._left: dict[PodUID, NodeName] = {}  # pods that had one and wait no longer -> its node
        self._promised: dict[str, Promise] = {}  # by id
        self._arrivals = itertools.count()
        self._youngest = ("", 0)
        self._fresh: dict[PodUID, None] = {}  # younger than all that were assumed
        self._stale = True
        # devices -> none left, as long as the fleet stays the same
        self._gone: dict[tuple[tuple[str, int], ...], bool] = {}
        view.waiting.on_change(self._waiting_changed)

    @contextmanager
    def assumed(self, promises: Iterable[Promise]) -> Iterator[None]:
        """Unbound pods and these promises count as long as the block lasts."""
        mark = self.fleet.checkpoint()
        try:
            self._assume_unbound()
            for promise in promises:
                self.promise(promise)
            yield
        finally:
            self._promised.clear()
            self.fleet.rollback(mark)

    @contextmanager
    def seen_by(self, own: Iterable[Promise], ignored: Iterable[Promise] = ()) -> Iterator[None]:
        """As one namespace sees it: promises that count for it alone, and without some that count for others."""
        mark = self.fleet.checkpoint()
        promised = dict(self._promised)
        try:
            for promise in ignored:
                self._promised.pop(promise.id, None)
                self.fleet.release_reservation(_key(promise))
            for promise in own:
                self.promise(promise)
            yield
        finally:
            self._promised = promised
            self.fleet.rollback(mark)

    def place(self, request: Request) -> Statement | None:
        """Put a pod on a node that can take it now; `undo` of the statement takes it back. Gates do not matter here."""
        return group_decision.place(self.fleet, request, self._graded if request.slices else self._plain)

    def fits_but_for_promises(self, request: Request) -> bool:
        if not self._promised or self._devices_are_gone(request):
            return False
        mark = self.fleet.checkpoint()
        try:
            for promise in self._promised.values():
                self.fleet.release_reservation(_key(promise))
            return self.place(request) is not None
        finally:
            self.fleet.rollback(mark)

    def promise(self, promise: Promise) -> None:
        """Hold the room of a promise for the rest of the block."""
        self._promised[promise.id] = promise
        key = _key(promise)
        self.fleet.reserve(Reservation(key, promise.node, promise.resources, promise.pieces, owner=promise.id))

    def holders(self, request: Request, most: int) -> tuple[list[NodeName], dict[PodUID, NodeName]]:
        """Nodes that could serve the request if they were empty, and the pods (with their nodes) in its way.

        Nothing if there are more than so many nodes.
        """
        wanted = [name for name in request.resources if name.startswith(names.NVIDIA_MIG_PREFIX)]
        found = []
        for node in self.fleet:
            assert node.facts is not None
            total = node.facts.allocatable
            if all(total.get(name, 0) >= request.resources[name] for name in wanted) and (
                node_rules.against_facts(node.facts, request) is None
            ):
                found.append(node.name)
                if len(found) > most:
                    return [], {}
        pods = ((uid, name, held) for name in found for uid, held in self.fleet.nodes[name].pods.items())
        return found, {uid: name for uid, name, held in pods if wants_mig(held)}

    # Pods without a node

    def _waiting_changed(self, uid: PodUID, waiting: WaitingPod | None) -> None:
        request = _asked(waiting) if waiting is not None else None
        if request is None or not wants_mig(request):
            self._leave(uid)
        else:
            self._waits(request)

    def _waits(self, request: Request) -> None:
        uid = request.uid
        known = self._unbound.get(uid)
        if known is not None:
            if known[1] != request:
                self._unbound[uid] = (known[0], request)
                self._stale = True
            return
        age = (request.created, next(self._arrivals))
        self._stale = self._stale or age < self._youngest
        self._youngest = max(self._youngest, age)
        self._unbound[uid] = (age, request)
        self._fresh[uid] = None

    def _leave(self, uid: PodUID) -> None:
        self._unbound.pop(uid, None)
        self._fresh.pop(uid, None)
        assumed = self._assumed.pop(uid, None)
        if assumed is not None:
            self._left[uid] = assumed.node

    def _assume_unbound(self) -> None:
        """Where nothing but the newest pods has changed, only these are looked at."""
        self._look_at_changes()
        if self._stale:
            self._assumed.clear()
            waiting = sorted(self._unbound.values(), key=lambda entry: entry[0])
        else:
            waiting = [self._unbound[uid] for uid in self._fresh]
        for statement in self._assumed.values():
            statement.apply(self.fleet)
        for _, request in waiting:
            placed = self.place(request)
            if placed is not None:
                self._assumed[request.uid] = placed
                self._gone.clear()
        self._fresh.clear()
        self._stale = False

    def _look_at_changes(self) -> None:
        """A pod that went to the node where it was assumed to be changes nothing for others."""
        changes = [change for change in self._changes.take() if change.kind is not Happened.DISPLAY_CHANGED]
        for change in changes:
            expected = change.kind is Happened.POD_CAME and self._left.pop(PodUID(change.pod), None) == change.node
            self._stale = self._stale or not expected
        self._stale = self._stale or bool(self._left)
        self._left.clear()
        if changes or self._stale:
            self._gone.clear()

    # Promises

    def _devices_are_gone(self, request: Request) -> bool:
        """A quick check: pods alone hold so many of the wanted devices that no node has enough left."""
        wanted = {name: n for name, n in request.resources.items() if name.startswith(names.NVIDIA_MIG_PREFIX)}
        if not wanted or any(wanted.keys() & promise.resources.keys() for promise in self._promised.values()):
            return False
        key = tuple(sorted(wanted.items()))
        if key not in self._gone:
            self._gone[key] = not any(all(node.free(name) >= n for name, n in wanted.items()) for node in self.fleet)
        return self._gone[key]


def wants_mig(request: Request) -> bool:
    return bool(request.slices) or any(name.startswith(names.NVIDIA_MIG_PREFIX) for name in request.resources)


def devices(request: Request) -> dict[str, int]:
    """The MIG devices of a pod by resource name: which distinguish a pod from others of its controller."""
    prefixes = (names.NVIDIA_MIG_PREFIX, names.SLICE_PREFIX)
    return {name: count for name, count in request.resources.items() if name.startswith(prefixes)}


def pieces(statement: Statement) -> tuple[SlicePlacement, ...]:
    return tuple(claim.placement for claim in statement.claims)


def without_volumes(request: Request) -> Request:
    """Volumes are not followed here: a pod does not fall back because of them."""
    if not request.has_volume_claims:
        return request
    rules = msgspec.structs.replace(request.rules, volume_claims=(), ephemeral=())
    return msgspec.structs.replace(request, rules=rules)


def _asked(waiting: WaitingPod) -> Request | None:
    """What the pod will hold; nothing if our own scheduler refuses to place it."""
    request, problem = waiting.reading
    refused = problem is not None and waiting.pod.spec.scheduler_name in names.OUR_SCHEDULERS
    return None if request is None or refused else without_volumes(request)


def _key(promise: Promise) -> str:
    return f"promise/{promise.id}"
