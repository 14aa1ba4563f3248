"""The fleet as it stands for fallback: pods that hold devices, pods that will, and promises.

Bound pods hold what they ask for until their containers have ended. Pods that are not bound yet, gated ones
too, are placed in thought, oldest first, on nodes they could run on; one that fits nowhere holds nothing.
Promises come last. Only pods that ask for MIG devices are placed in thought: nobody else competes for them.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from apportion.admission.fallback.promises import Piece, Promise
from apportion.apis import names
from apportion.apis.accelerators import NodeAccelerator
from apportion.apis.claims import AllocationClaim
from apportion.apis.errors import InputError
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod
from apportion.core import cycle
from apportion.core.catalog import Catalog
from apportion.core.choosing import best_seat
from apportion.core.filters import nodes as node_rules
from apportion.core.fleet import Fleet
from apportion.core.plans import Plan
from apportion.core.policies import FIRST_FIT, FRAGMENTATION, Policy
from apportion.view.accelerators import GpuReader, block_foreign, foreign_slices
from apportion.view.nodes import node_facts

log = logging.getLogger(__name__)


class Standing:
    """Informers call the `*_changed` methods; `settle` must be called before anything is placed."""

    def __init__(self, catalog: Catalog) -> None:
        self.fleet = Fleet(catalog)
        self._reader = GpuReader(catalog)
        self._accelerators: dict[str, NodeAccelerator] = {}
        self._plain, self._graded = Policy(FIRST_FIT), Policy(FRAGMENTATION)
        self._unbound: dict[str, tuple[tuple[str, int], Request]] = {}  # uid -> age, request
        self._thought: dict[str, Plan] = {}
        self._promised: dict[str, Promise] = {}
        self._arrivals = itertools.count()
        self._youngest = ("", 0)
        self._fresh: list[str] = []  # younger than all that were placed
        self._stale = False
        # devices -> none left, as long as no pod or node changes
        self._gone: dict[tuple[tuple[str, int], ...], bool] = {}

    # What the cluster says

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        self._gone.clear()
        if new is None:
            assert old is not None
            self.fleet.remove_node(old.metadata.name)
        else:
            facts = node_facts(new)
            known = self.fleet.nodes.get(facts.name)
            if known is not None and known.facts == facts:
                return
            self.fleet.set_node(facts)
            if known is None or known.facts is None:  # a node that goes takes its GPUs along
                self._set_gpus(facts.name)
        self._stale = True

    def accelerator_changed(self, old: NodeAccelerator | None, new: NodeAccelerator | None) -> None:
        subject = new or old
        assert subject is not None
        name = subject.metadata.name
        known = self._accelerators.pop(name, None)
        block_foreign(self.fleet, foreign_slices(known) if known else (), foreign_slices(new) if new else ())
        if new is not None:
            self._accelerators[name] = new
        self._set_gpus(name)
        self._stale = True

    def claim_changed(self, old: AllocationClaim | None, new: AllocationClaim | None) -> None:
        if new is None:
            assert old is not None
            self.fleet.remove_slice(old.name)
        else:
            spec, place = new.spec, new.spec.mig_placement
            self._forget_thought(spec.pod_ref.uid)
            self.fleet.add_slice(new.name, spec.gpu_uuid, spec.profile, place.start, place.size, spec.pod_ref.uid)
        self._stale = True

    def namespace_changed(self, old: Bare | None, new: Bare | None) -> None:
        subject = new or old
        assert subject is not None
        self.fleet.set_namespace(subject.metadata.name, new.metadata.labels if new is not None else None)

    def pod_changed(self, _old: Pod | None, new: Pod | None, uid: str) -> None:
        self._gone.clear()
        request = readable(new) if new is not None and not _ended(new) else None
        if new is None or request is None:
            self._leave(uid)
        elif new.spec.node_name:
            self._bound(request, new.spec.node_name)
        elif new.metadata.deleting or not wants_mig(request):
            self._leave(uid)
        else:
            self._waits(request)

    # Deciding on it

    def settle(self) -> None:
        """Place the unbound in thought: only the newest ones if nothing else has changed."""
        if not self._stale and not self._fresh:
            return
        self._gone.clear()
        with self._promises_aside():
            if self._stale:
                for uid in list(self._thought):
                    self._forget_thought(uid)
                waiting = sorted(self._unbound.values(), key=lambda entry: entry[0])
            else:
                waiting = [self._unbound[uid] for uid in self._fresh if uid in self._unbound]
            for _, request in waiting:
                plan = self.place(request)
                if plan is not None:
                    self._thought[request.uid] = plan
        self._fresh.clear()
        self._stale = False

    def place(self, request: Request) -> Plan | None:
        """Put a pod on a node that can take it now; `plan.undo(fleet)` takes it back. Gates do not matter here."""
        seat = best_seat(self.fleet, request, self._graded if request.slices else self._plain)
        return Plan(tuple(cycle.assume(self.fleet, request, seat))) if seat is not None else None

    def fits_but_for_promises(self, request: Request) -> bool:
        if not self._promised or self._devices_are_gone(request):
            return False
        mark = self.fleet.checkpoint()
        try:
            for promise in self._promised.values():
                self._take_back(promise)
            return self.place(request) is not None
        finally:
            self.fleet.rollback(mark)

    def set_promises(self, wanted: Iterable[Promise]) -> None:
        """Exactly these promises count from now on."""
        after = {promise.id: promise for promise in wanted}
        for identity in [identity for identity in self._promised if identity not in after]:
            self._take_back(self._promised.pop(identity))
        for identity, promise in after.items():
            if identity not in self._promised:
                self.promise(promise)

    def promise(self, promise: Promise) -> None:
        self._promised[promise.id] = promise
        self._give(promise)

    def _devices_are_gone(self, request: Request) -> bool:
        """A quick no: pods alone hold so many of the wanted devices that no node has enough left."""
        wanted = {name: n for name, n in request.resources.items() if name.startswith(names.NVIDIA_MIG_PREFIX)}
        if not wanted or any(wanted.keys() & promise.resources.keys() for promise in self._promised.values()):
            return False
        key = tuple(sorted(wanted.items()))
        if key not in self._gone:
            self._gone[key] = not any(all(node.free(name) >= n for name, n in wanted.items()) for node in self.fleet)
        return self._gone[key]

    def holders(self, request: Request, most: int) -> tuple[list[str], dict[str, str]]:
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
        promised = {_key(promise) for promise in self._promised.values()}
        pods = ((uid, name, held) for name in found for uid, held in self.fleet.nodes[name].pods.items())
        return found, {uid: name for uid, name, held in pods if uid not in promised and wants_mig(held)}

    # Parts of the above

    def _bound(self, request: Request, node: str) -> None:
        """Nothing changes for others if the pod went where thought had put it."""
        uid = request.uid
        plan = self._thought.get(uid)
        self._unbound.pop(uid, None)
        if plan is not None:
            self._stale = self._stale or plan.binds[0].node != node
            self._forget_thought(uid)
        elif uid not in self.fleet.pod_nodes:
            self._stale = True
        self.fleet.add_pod(request, node)

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
        self._fresh.append(uid)

    def _leave(self, uid: str) -> None:
        self._unbound.pop(uid, None)
        if uid in self._thought or uid in self.fleet.pod_nodes:
            self._forget_thought(uid)
            self.fleet.remove_pod(uid)
            self._stale = True

    def _forget_thought(self, uid: str) -> None:
        plan = self._thought.pop(uid, None)
        if plan is not None:
            plan.undo(self.fleet)

    @contextmanager
    def _promises_aside(self) -> Iterator[None]:
        for promise in self._promised.values():
            self._take_back(promise)
        yield
        for promise in self._promised.values():
            self._give(promise)

    def _give(self, promise: Promise) -> None:
        key = _key(promise)
        for number, piece in enumerate(promise.pieces):
            self.fleet.add_slice(f"{key}/{number}", piece.gpu, piece.profile, piece.start, piece.size, key)
        self.fleet.add_pod(Request(key, "", key, resources=promise.resources), promise.node)

    def _take_back(self, promise: Promise) -> None:
        key = _key(promise)
        self.fleet.remove_pod(key)
        for number in range(len(promise.pieces)):
            self.fleet.remove_slice(f"{key}/{number}")

    def _set_gpus(self, node: str) -> None:
        accelerator = self._accelerators.get(node)
        gpus = self._reader.facts(accelerator) if accelerator is not None else ()
        self.fleet.set_gpus(node, gpus, ready=accelerator is not None and accelerator.ready)


def wants_mig(request: Request) -> bool:
    return bool(request.slices) or any(name.startswith(names.NVIDIA_MIG_PREFIX) for name in request.resources)


def devices(request: Request) -> dict[str, int]:
    """The MIG devices of a pod by resource name: how a pod is told from others of its controller."""
    prefixes = (names.NVIDIA_MIG_PREFIX, names.SLICE_PREFIX)
    return {name: count for name, count in request.resources.items() if name.startswith(prefixes)}


def pieces(plan: Plan) -> Iterator[Piece]:
    for claim in plan.claims:
        place = claim.placement
        yield Piece(place.gpu, place.profile, place.start, place.size)


def readable(pod: Pod) -> Request | None:
    """What a pod asks for, None if that cannot be read."""
    try:
        return request_of(pod)
    except InputError as error:
        log.debug("pod %s/%s is not counted: %s", pod.metadata.namespace, pod.metadata.name, error)
        return None


def request_of(pod: Pod) -> Request:
    """What a pod asks for; its annotations matter to others, its volumes are not followed here."""
    request = parse_pod(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations={})))
    if request.rules.claims:
        request = msgspec.structs.replace(request, rules=msgspec.structs.replace(request.rules, claims=()))
    return request


def _key(promise: Promise) -> str:
    return f"promise/{promise.id}"


def _ended(pod: Pod) -> bool:
    """No container is left: the phase says so, or every container of a pod that is being deleted.

    Sidecars stand among the init containers, and end after the others.
    """
    if pod.terminal:
        return True
    status = pod.status
    if not pod.metadata.deleting or any(each.state.running is not None for each in status.init_container_statuses):
        return False
    states = status.container_statuses
    return bool(states) and all(each.state.terminated is not None for each in states)
