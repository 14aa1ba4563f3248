"""The fleet as the cluster reports it, plus what we have decided and not seen confirmed yet.

Informers call the `*_changed` methods. A statement is assumed the moment it is made: its pod and its slices
count as there. Each assumption ends when the informer shows the object (confirmed), when the commit
failed and the server has no such object (`forget`), or when it was not seen for too long and a look at
the server says that it is not there (`drop`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from apportion.apis import names
from apportion.apis.accelerators import NodeAccelerator
from apportion.apis.claims import AllocationClaim
from apportion.apis.errors import InputError
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod
from apportion.cluster.reports import Foreign, GpuReader, block_foreign, foreign_slices, node_facts
from apportion.core.catalog import Catalog
from apportion.core.changes import Change, Happened
from apportion.core.fleet import Fleet, GpuFacts, SlicePlacement
from apportion.core.operations import ObjectKind, ObjectRef, Operation
from apportion.core.statement import Assumptions, Overdue, Statement
from apportion.scheduler.backlog import Backlog

log = logging.getLogger(__name__)


class Gpus(NamedTuple):
    """What a node's agent reports; `foreign` are slices that others made."""

    facts: tuple[GpuFacts, ...] = ()
    ready: bool = False
    foreign: tuple[Foreign, ...] = ()


class Mirror:
    """Keeps a Fleet and a Backlog in step with the cluster."""

    def __init__(
        self,
        catalog: Catalog,
        backlog: Backlog,
        *,
        now: Callable[[], float],
        on_change: Callable[[], None],
        on_problem: Callable[[Pod, InputError], None],
        schedulers: tuple[str, ...] = names.OUR_SCHEDULERS,
    ) -> None:
        self.fleet = Fleet(catalog)
        self.fleet.sharing = False  # nobody binds pods with a share yet
        self.backlog = backlog
        self._reader = GpuReader(catalog)
        self._now = now
        self._on_change = on_change
        self._on_problem = on_problem
        self._schedulers = schedulers
        self._changes: list[Change] = []
        self._claims: dict[str, AllocationClaim] = {}
        self._accelerators: dict[str, NodeAccelerator] = {}
        self._gpus: dict[str, Gpus] = {}
        self._ready_agents: dict[tuple[str, str], str] = {}  # (namespace, name) -> uid of a ready pod
        self._assumptions = Assumptions(self.fleet)

    # What decisions need

    def take_changes(self) -> list[Change]:
        changes, self._changes = self._changes, []
        return changes

    def claims_of(self, uid: str) -> list[AllocationClaim]:
        """Claims of a pod that the informer has shown."""
        return [self._claims[record.key] for record in self.fleet.slices_of(uid) if record.key in self._claims]

    # What was decided

    def assume(self, statement: Statement) -> None:
        """`decide` has entered the statement into the fleet: remember that nobody has confirmed it yet."""
        self._assumptions.decided(statement)

    def written(self, statement: Statement) -> None:
        """The statement is on the server; from now on the informers have to show it soon."""
        self._assumptions.written(statement, self._now())

    def forget(self, statement: Statement, standing: Collection[ObjectRef]) -> None:
        """The statement was not carried out; only what `standing` names is on the server."""
        for operation in self._assumptions.undo(statement, self._now(), standing):
            self._undone(operation)

    def drop(self, operation: Operation) -> None:
        """The server does not have what the operation wrote."""
        ref = operation.confirmed_by
        if ref is not None and self._assumptions.drop(ref) is not None:
            self._undone(operation)

    def overdue(self, seconds: float) -> list[Overdue]:
        """What was written that many seconds ago and not seen since."""
        return self._assumptions.overdue(self._now() - seconds)

    # What the cluster says

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self.fleet.remove_node(old.metadata.name)
            block_foreign(self.fleet, self._gpus.pop(old.metadata.name, Gpus()).foreign, ())
            self._note(Happened.NODE_CHANGED, old.metadata.name)
            return
        facts = node_facts(new)
        known = self.fleet.nodes.get(facts.name)
        if known is None or known.facts != facts:
            self.fleet.set_node(facts)
            self._note(Happened.NODE_CHANGED, facts.name)
        self._refresh_gpus(facts.name)

    def accelerator_changed(self, old: NodeAccelerator | None, new: NodeAccelerator | None) -> None:
        if new is None:
            assert old is not None
            self._accelerators.pop(old.metadata.name, None)
            self._refresh_gpus(old.metadata.name)
            return
        self._accelerators[new.metadata.name] = new
        self._refresh_gpus(new.metadata.name)

    def namespace_changed(self, old: Bare | None, new: Bare | None) -> None:
        subject = new or old
        assert subject is not None
        self.fleet.set_namespace(subject.metadata.name, new.metadata.labels if new is not None else None)

    def storage_changed(self, ref: ObjectRef | None) -> None:
        if ref is not None:
            self._assumptions.confirm(ref)
        self._note(Happened.STORAGE_CHANGED, "")

    def claim_changed(self, old: AllocationClaim | None, new: AllocationClaim | None) -> None:
        if new is None:
            assert old is not None
            self._claims.pop(old.name, None)
            self._confirm(ObjectKind.CLAIM, old.name)
            self._slice_left(old.name, old.spec.nodename)
            return
        self._claims[new.name] = new
        self._confirm(ObjectKind.CLAIM, new.name)
        spec = new.spec
        place = spec.mig_placement
        self.fleet.add_slice(
            new.name,
            SlicePlacement(spec.gpu_uuid, spec.profile, place.start, place.size),
            spec.pod_ref.uid,
            node=spec.nodename,
            releasing=new.metadata.deleting,
        )
        if old is not None and old.spec != spec:  # its agent gave it another place
            self._note(Happened.SLICE_FREED, old.spec.nodename, spec.pod_ref.uid)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        subject = new or old
        assert subject is not None
        if subject.metadata.labels.get(names.APP_LABEL) == names.AGENT_APP:
            self._agent_changed(subject, new)
        if old is not None and new is not None and _same_wish(old, new):
            return
        uid = subject.metadata.uid
        if new is None or new.terminal:
            self._confirm(ObjectKind.POD, uid)
            self._confirm(ObjectKind.POD_END, uid)
            self.backlog.withdraw(uid)
            self._pod_left(uid)
        elif new.spec.node_name:
            self._pod_bound(old, new)
        elif self._is_ours(new):
            self._pod_waits(new)
        else:
            self.backlog.withdraw(uid)

    # Parts of the above

    def _confirm(self, kind: ObjectKind, name: str) -> bool:
        return self._assumptions.confirm(ObjectRef(kind, name)) is not None

    def _undone(self, operation: Operation) -> None:
        if operation.frees is not None:
            self._note(*operation.frees)

    def _is_ours(self, pod: Pod) -> bool:
        """Gated pods are nobody's yet; deleted ones nobody's any more."""
        spec = pod.spec
        return spec.scheduler_name in self._schedulers and not spec.scheduling_gates and not pod.metadata.deleting

    def _pod_bound(self, old: Pod | None, pod: Pod) -> None:
        uid, node = pod.metadata.uid, pod.spec.node_name
        assumed = self._confirm(ObjectKind.POD, uid)
        self.backlog.withdraw(uid)
        known = self.fleet.pod_nodes.get(uid)
        if assumed and known == node and old is not None and _only_bound(old, pod):
            self._note(Happened.POD_CAME, node, uid)  # as assumed: the fleet has it already
            return
        request = _lenient(pod)
        if request is None:
            return
        if known == node and self.fleet.nodes[node].pods[uid] == request:
            return
        self.fleet.add_pod(request, node)
        if known is not None and known != node:
            self._note(Happened.POD_GONE, known, uid)
        self._note(Happened.POD_CAME, node, uid)

    def _pod_waits(self, pod: Pod) -> None:
        try:
            request = parse_pod(pod)
        except InputError as error:
            self.backlog.withdraw(pod.metadata.uid)
            self._on_problem(pod, error)
            return
        if self.backlog.offer(request):
            self._on_change()

    def _pod_left(self, uid: str) -> None:
        node = self.fleet.pod_nodes.get(uid)
        if node is not None:
            self.fleet.remove_pod(uid)
            self._note(Happened.POD_GONE, node, uid)

    def _slice_left(self, name: str, node: str = "") -> None:
        record = self.fleet.slices.get(name)
        if record is not None:
            self.fleet.remove_slice(name)
            self._note(Happened.SLICE_FREED, self.fleet.gpu_nodes.get(record.gpu, node), record.owner)

    def _agent_changed(self, subject: Pod, new: Pod | None) -> None:
        key = (subject.metadata.namespace, subject.metadata.name)
        before = self._ready_agents.get(key)
        after = new.metadata.uid if new and new.ready and not new.metadata.deleting and not new.terminal else None
        if before == after:
            return
        if after is None:
            del self._ready_agents[key]
        else:
            self._ready_agents[key] = after
        for node, accelerator in self._accelerators.items():
            agent = accelerator.status.agent
            if agent is not None and (agent.namespace, agent.name) == key:
                self._refresh_gpus(node)

    def _refresh_gpus(self, node: str) -> None:
        accelerator = self._accelerators.get(node)
        gpus = Gpus()
        if accelerator is not None:
            ready = accelerator.ready and self._has_agent(accelerator)
            gpus = Gpus(self._reader.facts(accelerator), ready, foreign_slices(accelerator))
        known = self._gpus.get(node, Gpus())
        if known == gpus:
            return
        self._gpus[node] = gpus
        if known[:2] != gpus[:2]:
            self.fleet.set_gpus(node, gpus.facts, ready=gpus.ready)
        block_foreign(self.fleet, known.foreign, gpus.foreign)
        self._note(Happened.NODE_CHANGED, node)

    def _has_agent(self, accelerator: NodeAccelerator) -> bool:
        agent = accelerator.status.agent
        return agent is not None and self._ready_agents.get((agent.namespace, agent.name)) == agent.uid

    def _note(self, kind: Happened, node: str, pod: str = "") -> None:
        self._changes.append(Change(kind, node, pod))
        self._on_change()


def _only_bound(old: Pod, new: Pod) -> bool:
    """Nothing but the node was added."""
    return (
        msgspec.structs.replace(new.spec, node_name="") == old.spec
        and old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
    )


def _same_wish(old: Pod, new: Pod) -> bool:
    """Only the pod's state was reported again, nothing that a decision rests on."""
    return (
        old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.metadata.deleting == new.metadata.deleting
        and old.terminal == new.terminal
    )


def _lenient(pod: Pod) -> Request | None:
    """The request of a pod that runs already: what it holds counts, whatever its annotations say."""
    try:
        return parse_pod(pod)
    except InputError:
        pass
    bare = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations={}))
    try:
        return parse_pod(bare)
    except InputError as error:
        log.error("pod %s/%s is not counted: %s", pod.metadata.namespace, pod.metadata.name, error)  # noqa: TRY400
        return None
