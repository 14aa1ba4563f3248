"""What agents report of their nodes' GPUs, as facts of the fleet.

A node takes slices while its report says that it is ready and the very agent pod that wrote the report is ready
too (S09). A report that cannot be read is logged and left out, so that one odd node takes nothing from the others.
For the same reason a GPU that several nodes report counts for one of them: the one whose object is the oldest, which no
agent can choose (T04).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from apportion.apis.custom_resources.accelerators import Accelerator, NodeAccelerator, PodMemoryUse
from apportion.apis.errors import ApportionError
from apportion.apis.identities import ClaimName, DeviceUUID, NodeName, PodUID
from apportion.apis.placements import SlicePlacement
from apportion.apis.pods import Pod
from apportion.core.catalog import Catalog, Model
from apportion.core.cluster_changes import Happened
from apportion.core.fleet import Fleet, GpuFacts
from apportion.view.change_log import ChangeLog

log = logging.getLogger(__name__)


class Report(NamedTuple):
    """What counts of a node's report; `foreign` are slices that we did not make, some of unknown profile."""

    gpus: tuple[GpuFacts, ...] = ()
    ready: bool = False
    foreign: tuple[SlicePlacement, ...] = ()
    held: tuple[tuple[PodUID, tuple[DeviceUUID, ...]], ...] = ()  # pods with the GPUs that the kubelet gave them


class GpuReader:
    """GPUs as agents report them; each geometry is worked out once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._models: dict[tuple[object, ...], Model] = {}

    def facts(self, node: NodeName, gpus: Sequence[Accelerator]) -> tuple[GpuFacts, ...]:
        found = []
        for gpu in gpus:
            try:
                model = self._model(gpu)
            except ApportionError as error:
                log.error("ignoring GPU %s of node %s: %s", gpu.uuid, node, error)  # noqa: TRY400
                continue
            found.append(GpuFacts(gpu.uuid, model, gpu.mig_enabled, gpu.healthy))
        return tuple(found)

    def _model(self, gpu: Accelerator) -> Model:
        places = tuple((profile.name, profile.size, tuple(profile.starts), profile.limit) for profile in gpu.profiles)
        key = (gpu.model, gpu.memory_mib, places)
        if key not in self._models:
            base = self._catalog.find(gpu.model, gpu.memory_mib or None)
            self._models[key] = Model.from_discovery(gpu.model, gpu.memory_mib, gpu.profiles, base)
        return self._models[key]


class Accelerators:
    """Feeds agents' reports into the fleet, and knows them by node."""

    def __init__(self, fleet: Fleet, changes: ChangeLog) -> None:
        self._fleet = fleet
        self._changes = changes
        self._reader = GpuReader(fleet.catalog)
        self._objects: dict[NodeName, NodeAccelerator] = {}
        self._reports: dict[NodeName, Report] = {}
        self._reporters: dict[DeviceUUID, set[NodeName]] = {}
        self._ready_agents: dict[tuple[str, str], str] = {}  # (namespace, name) -> uid of a ready pod
        self._slots: dict[
            NodeName, tuple[GpuFacts, ...]
        ] = {}  # GPUs by what the kubelet offers, if nobody reports them
        self._reserved: dict[NodeName, dict[PodUID, tuple[DeviceUUID, ...]]] = {}  # by reservation pod
        self._closed: frozenset[DeviceUUID] = frozenset()
        self._listeners: list[Callable[[NodeName], None]] = []

    def __iter__(self) -> Iterator[NodeAccelerator]:
        return iter(self._objects.values())

    def unclaimed(self, node: NodeName, uid: PodUID) -> dict[ClaimName, SlicePlacement]:
        """Slices of a pod that exist on its node although their claims are gone, by claim."""
        found = self._objects.get(node)
        slices = found.status.unclaimed if found is not None else []
        return {
            entry.claim: SlicePlacement(entry.gpu_uuid, entry.profile, entry.start, entry.size)
            for entry in slices
            if entry.pod_uid == uid
        }

    def changed(self, old: NodeAccelerator | None, new: NodeAccelerator | None) -> None:
        subject = new or old
        assert subject is not None
        name = NodeName(subject.metadata.name)
        if new is None:
            self._objects.pop(name, None)
        else:
            self._objects[name] = new
        before = self._changes.position
        for node in self._note_reporter(name, old, new):
            self.refresh(node)
        if _shown(old) != _shown(new):
            self._changes.note_display(before)

    def agent_changed(self, subject: Pod, new: Pod | None) -> None:
        """A pod of an agent came, changed or went."""
        key = (subject.metadata.namespace, subject.metadata.name)
        after = new.metadata.uid if new and new.ready and not new.metadata.deleting and not new.terminal else None
        if self._ready_agents.get(key) == after:
            return
        if after is None:
            del self._ready_agents[key]
        else:
            self._ready_agents[key] = after
        self.refresh(subject.spec.node_name)  # an agent reports on its own node only

    def on_gpus_changed(self, listener: Callable[[NodeName], None]) -> None:
        """Call the listener after the GPUs of a node, or the pods that hold them, came, changed or went."""
        self._listeners.append(listener)

    def held_on(self, node: NodeName) -> Mapping[PodUID, tuple[DeviceUUID, ...]]:
        """The GPUs that the kubelet gave to pods, as far as the agent reports it."""
        return dict(self._reports.get(node, Report()).held)

    def set_slots(self, node: NodeName, slots: tuple[GpuFacts, ...]) -> None:
        """The GPUs that a node has by its Node object; they count while pods can share GPUs and no agent reports any.

        To be followed by `refresh`."""
        if slots:
            self._slots[node] = slots
        else:
            self._slots.pop(node, None)

    def refresh_slots(self) -> None:
        for node in sorted(self._slots):
            self.refresh(node)

    def set_reserved(self, node: NodeName, uid: PodUID, devices: tuple[DeviceUUID, ...]) -> None:
        """The GPU that a reservation pod has, by all its names; none if it is unknown, or the pod has ended."""
        known = self._reserved.setdefault(node, {})
        if known.get(uid, ()) != devices:
            if devices:
                known[uid] = devices
            else:
                del known[uid]
            self.assign_devices(node)
        if not known:
            del self._reserved[node]

    def set_closed(self, devices: frozenset[DeviceUUID]) -> None:
        """GPUs that take no more shares."""
        changed, self._closed = self._closed ^ devices, devices
        for node in sorted({self._fleet.gpu_nodes[device] for device in changed if device in self._fleet.gpu_nodes}):
            self.refresh(node)

    def is_closed(self, device: DeviceUUID) -> bool:
        """The reservation of those who share the GPU is on another one."""
        return device in self._closed

    def node_removed(self, node: NodeName) -> None:
        """The fleet has forgotten the node with its GPUs."""
        self._slots.pop(node, None)
        known = self._reports.pop(node, Report())
        _block_foreign(self._fleet, known.foreign, ())
        self.refresh(node)  # its report may outlast it
        if known.gpus and node not in self._reports:
            self._tell(node)

    def refresh(self, node: NodeName) -> None:
        """Bring the fleet in line with the node's report."""
        report = self._report(node)
        known = self._reports.get(node, Report())
        if known == report:
            return
        if report == Report():
            del self._reports[node]
        else:
            self._reports[node] = report
        if (known.gpus, known.ready) != (report.gpus, report.ready):
            self._fleet.set_gpus(node, report.gpus, ready=report.ready)
        _block_foreign(self._fleet, known.foreign, report.foreign)
        self.assign_devices(node)
        if known[:3] != report[:3]:
            self._changes.note(Happened.NODE_CHANGED, node)
        if (known.gpus, known.held) != (report.gpus, report.held):
            self._tell(node)

    def _tell(self, node: NodeName) -> None:
        for listener in self._listeners:
            listener(node)

    def assign_devices(self, node: NodeName) -> None:
        """Give pods the very GPUs that the kubelet gave them, as far as the agent reports it, and others free ones."""
        before = self._free_gpus(node)
        self._fleet.set_devices(node, {**self._reserved.get(node, {}), **self.held_on(node)})
        if self._free_gpus(node) != before:
            self._changes.note(Happened.NODE_CHANGED, node)

    def _free_gpus(self, node: NodeName) -> Counter[str]:
        """By model: which GPU of a model is free makes no difference to a decision."""
        state = self._fleet.nodes.get(node)
        gpus = state.gpus.values() if state is not None else ()
        return Counter(gpu.facts.model.id for gpu in gpus if gpu.takes_whole)

    def _report(self, node: NodeName) -> Report:
        accelerator = self._objects.get(node)
        slots = self._slots.get(node, ()) if self._fleet.sharing else ()
        if accelerator is None or (slots and not accelerator.status.gpus):
            return Report(self._marked(slots))
        own = [gpu for gpu in accelerator.status.gpus if self._counts(gpu.uuid, node)]
        facts = self._reader.facts(node, own)
        if not accelerator.takes_shares:
            facts = tuple(replace(gpu, takes_shares=False) for gpu in facts)
        ready = accelerator.ready and self._has_agent(accelerator)
        return Report(self._marked(facts), ready, _foreign_slices(own), _held_gpus(own))

    def _marked(self, gpus: tuple[GpuFacts, ...]) -> tuple[GpuFacts, ...]:
        """With those that take no more shares."""
        if self._closed.isdisjoint(gpu.uuid for gpu in gpus):
            return gpus
        return tuple(replace(gpu, takes_shares=False) if gpu.uuid in self._closed else gpu for gpu in gpus)

    def _note_reporter(
        self, node: NodeName, old: NodeAccelerator | None, new: NodeAccelerator | None
    ) -> list[NodeName]:
        """Returns the nodes whose reports may count differently now: first those that can lose a GPU to another."""
        before, after = ({gpu.uuid for gpu in _gpus(each)} for each in (old, new))
        rivals: set[NodeName] = set()
        for uuid in before ^ after:
            reporters = self._reporters.setdefault(uuid, set())
            rivals |= reporters - {node}
            (reporters.add if uuid in after else reporters.discard)(node)
            if not reporters:
                del self._reporters[uuid]
            elif len(reporters) > 1:
                log.error("GPU %s is reported by several nodes: %s", uuid, ", ".join(sorted(reporters)))
        return [*sorted(rivals), node] if after - before else [node, *sorted(rivals)]

    def _counts(self, uuid: DeviceUUID, node: NodeName) -> bool:
        reporters = self._reporters.get(uuid, {node})
        return len(reporters) == 1 or min(reporters, key=self._seniority) == node

    def _seniority(self, node: NodeName) -> tuple[str, NodeName]:
        return self._objects[node].metadata.creation_timestamp or "", node

    def _has_agent(self, accelerator: NodeAccelerator) -> bool:
        agent = accelerator.status.agent
        return agent is not None and self._ready_agents.get((agent.namespace, agent.name)) == agent.uid


def _gpus(accelerator: NodeAccelerator | None) -> list[Accelerator]:
    return accelerator.status.gpus if accelerator is not None else []


def _shown(accelerator: NodeAccelerator | None) -> tuple[list[Accelerator], list[PodMemoryUse]]:
    return _gpus(accelerator), accelerator.status.memory_use if accelerator is not None else []


def _foreign_slices(gpus: Sequence[Accelerator]) -> tuple[SlicePlacement, ...]:
    return tuple(SlicePlacement(gpu.uuid, it.profile, it.start, it.size) for gpu in gpus for it in gpu.foreign)


def _held_gpus(gpus: Sequence[Accelerator]) -> tuple[tuple[PodUID, tuple[DeviceUUID, ...]], ...]:
    """GPUs that pods hold, for themselves or as a reservation for pods that share them."""
    found: dict[PodUID, tuple[DeviceUUID, ...]] = {}
    for gpu in gpus:
        for holder in gpu.holders:
            if holder.kind in {"whole", "reservation"}:
                found[holder.pod_uid] = (*found.get(holder.pod_uid, ()), gpu.uuid)
    return tuple(sorted(found.items()))


def _block_foreign(fleet: Fleet, old: Iterable[SlicePlacement], new: Iterable[SlicePlacement]) -> None:
    """Slices of others hold their places and belong to no pod; with its profile one counts for limits too."""
    after = set(new)
    for placement in set(old) - after:
        fleet.remove_slice(_foreign_key(placement))
    for placement in after:
        fleet.add_slice(_foreign_key(placement), placement, "")


def _foreign_key(placement: SlicePlacement) -> str:
    return f"foreign/{placement.gpu}/{placement.start}/{placement.size}"  # no claim can have this name
