"""The group, queue and priority of a pod.

A pod names its group by an annotation: the PodGroup says the rest. Otherwise its owners say which pods form a group,
and without owners it is a group of its own. The queue is that of the PodGroup, of the topmost owner that names one, or
of the pod; a priority class and whether the pod is preemptible are found in the same order.

A pod whose PodGroup does not exist has a problem. One whose owners are not known yet is held back for a moment.

The PodGroups that the scheduler makes for owners follow these: as long as the owners are known, what such a PodGroup
says does not count, and its pods, which name it once they are bound, need not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from apportion.apis import names
from apportion.apis.custom_resources import pod_groups
from apportion.apis.custom_resources.pod_groups import GroupSettings, PodGroup
from apportion.apis.errors import InputError
from apportion.apis.identities import PodUID
from apportion.apis.owner_kinds import grouping
from apportion.apis.owner_kinds.grouping import OwnerSettings
from apportion.apis.pods import Pod
from apportion.apis.priorities import TRAIN
from apportion.apis.request import Request
from apportion.cluster import clock
from apportion.core.fleet import Fleet
from apportion.core.groups import Gang, Subgroup
from apportion.view.groups.gang_members import GangMembers, Member
from apportion.view.groups.owners import NO_OWNER, Owners, OwnerWord
from apportion.view.requests import Reading, read

HOLD_SECONDS = 3.0  # how long a pod is held back for owners that informers have not shown


class MissingPodGroup(InputError):
    code = "PodGroupDoesNotExist"


class MissingPriorityClass(InputError):
    code = "PriorityClassDoesNotExist"


class Grouped(NamedTuple):
    """A pod with its group. `held`: do not decide about it yet, its owners are not known."""

    reading: Reading
    held: bool = False


class _PodGroup(NamedTuple):
    """A PodGroup that was read: its settings, or what is wrong with it. `managed`: the scheduler made it."""

    settings: GroupSettings | None
    gang: Gang | None
    problem: InputError | None = None
    managed: bool = False


class Groups:
    """Reads pods as members of their groups, and keeps the groups in the fleet.

    `pod_groups_known`, `classes_known`: all such objects have been read, so what is missing does not exist.
    """

    def __init__(self, fleet: Fleet, owners: Owners, now: Callable[[], float]) -> None:
        self.owners = owners
        self.members = GangMembers(fleet)
        self.pod_groups_known = self.classes_known = False
        self._now = now
        self._pod_groups: dict[str, _PodGroup] = {}
        self._classes: dict[str, int] = {}
        self._class_users: dict[str, dict[PodUID, None]] = {}
        self._class_of: dict[PodUID, str] = {}
        self._held_until: dict[PodUID, float] = {}
        self._listeners: list[Callable[[str], None]] = []

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call `listener(key)` when pods or settings of a group may have changed."""
        self._listeners.append(listener)

    # Pods

    def read(self, pod: Pod) -> Grouped:
        """What the pod asks for, as a member of its group. Nothing is remembered."""
        reading = read(pod)
        if reading.request is None or pod.spec.scheduler_name not in names.OUR_SCHEDULERS:
            return Grouped(reading)
        word, complete = self.owners.word(pod)
        return self._grouped(reading, word, complete=complete)[0]

    def enter(self, pod: Pod) -> tuple[Grouped, bool]:
        """The same for a pod of the cluster, which is a member of its group from now on; True if that changed what is
        known of a group."""
        uid = PodUID(pod.metadata.uid)
        reading = read(pod)
        if reading.request is None or pod.spec.scheduler_name not in names.OUR_SCHEDULERS:
            return Grouped(reading), self.leave(uid)
        word, complete = self.owners.word(pod)
        if complete:
            self._held_until.pop(uid, None)
        elif uid not in self._held_until:
            self._held_until[uid] = self._now() + HOLD_SECONDS
        grouped, priority_class = self._grouped(reading, word, complete=complete)
        self._note_class(uid, priority_class)
        assert grouped.reading.request is not None
        changed = self.members.set(uid, self._member(pod, grouped.reading.request, word))
        self._tell(grouped.reading.request.group_key)
        return grouped, changed

    def leave(self, uid: PodUID) -> bool:
        """The pod has ended or is gone; True if that changed what is known of a group."""
        self._held_until.pop(uid, None)
        self._note_class(uid, "")
        key = self.members.key_of(uid)
        changed = self.members.set(uid, None)
        if key is not None:
            self._tell(key)
        return changed

    def status_changed(self, pod: Pod) -> None:
        self.members.set_started(PodUID(pod.metadata.uid), _started(pod))

    def is_of_user(self, key: str) -> bool:
        """There is a PodGroup that the scheduler did not make."""
        found = self._pod_groups.get(key)
        return found is not None and not found.managed

    # Objects; each method returns the pods that a change concerns

    def set_pod_group(self, key: str, group: PodGroup | None) -> list[PodUID]:
        known = _pod_group(key, group) if group is not None else None
        if _same(self._pod_groups.get(key), known):
            return []
        if known is None:
            del self._pod_groups[key]
        else:
            self._pod_groups[key] = known
        return self.members.of(key)

    def set_priority_class(self, name: str, value: int | None) -> list[PodUID]:
        if self._classes.get(name) == value:
            return []
        if value is None:
            del self._classes[name]
        else:
            self._classes[name] = value
        return list(self._class_users.get(name, ()))

    def with_owner(self) -> list[PodUID]:
        return [uid for uid in self.members if self.owners.owned(uid)]

    def without_pod_group(self) -> list[PodUID]:
        """Pods that name a PodGroup which is not known."""
        return self.members.without_gang()

    def without_class(self) -> list[PodUID]:
        """Pods whose group names a priority class which is not known."""
        return [uid for name, users in self._class_users.items() if name not in self._classes for uid in users]

    # Pods that are held back

    def overdue(self) -> list[PodUID]:
        """Pods that were held back long enough."""
        now = self._now()
        return self._released([uid for uid, until in self._held_until.items() if 0 < until <= now])

    def held(self) -> list[PodUID]:
        return [uid for uid, until in self._held_until.items() if until > 0]

    def release_all(self) -> list[PodUID]:
        """All pods that are held back: nothing more will be shown."""
        return self._released(self.held())

    def _released(self, uids: list[PodUID]) -> list[PodUID]:
        for uid in uids:
            self._held_until[uid] = 0
        return uids

    # Parts of the above

    def _grouped(self, reading: Reading, word: OwnerWord, *, complete: bool) -> tuple[Grouped, str]:
        """Besides, the priority class that the group names."""
        request, problem = reading
        assert request is not None
        if request.group is not None and request.group == grouping.single_group_name(request.name, request.uid):
            request = msgspec.structs.replace(request, group=None)
        found = NO_POD_GROUP
        by_owner = self._by_owner(request, word)
        if request.group is not None and not by_owner:
            found = self._pod_groups.get(request.group_key, NO_POD_GROUP)
            if found is NO_POD_GROUP and self.pod_groups_known:
                problem = problem or _missing(request)
        problem = problem or word.problem or found.problem
        stated = _stated(request, found.settings, word)
        value = self._classes.get(stated.priority_class)
        if value is None and stated.priority_class and self.classes_known:
            problem = problem or _missing_class(request, stated.priority_class)
        changes = _changes(request, stated, value, word if by_owner else NO_OWNER)
        if changes:
            request = msgspec.structs.replace(request, **changes)
        held = not complete and self._held_until.get(request.uid, 0) > 0
        return Grouped(Reading(request, problem), held), stated.priority_class

    def _member(self, pod: Pod, request: Request, word: OwnerWord) -> Member:
        key = request.group_key
        if request.group is None:
            return Member(key, Gang(key, created=request.created), started=_started(pod))
        member = Member(key, subgroup=request.subgroup, started=_started(pod), gated=request.gated)
        found = self._pod_groups.get(key, NO_POD_GROUP)
        if names.POD_GROUP in pod.metadata.annotations and not self._by_owner(request, word):
            return member._replace(gang=found.gang, by_pod_group=True)
        gang = word.gang
        if gang is not None and found.gang is not None and found.gang.below_since is not None:
            gang = msgspec.structs.replace(gang, below_since=found.gang.below_since)
        return member._replace(gang=gang)

    def _by_owner(self, request: Request, word: OwnerWord) -> bool:
        """The owners say which group the pod is in: it names none, or the one that the scheduler makes for them."""
        if request.group is None or word.group is None:
            return request.group is None and word.group is not None
        return request.group == word.group and not self.is_of_user(request.group_key)

    def _tell(self, key: str) -> None:
        for listener in self._listeners:
            listener(key)

    def _note_class(self, uid: PodUID, name: str) -> None:
        before = self._class_of.get(uid, "")
        if before == name:
            return
        if before:
            users = self._class_users[before]
            del users[uid]
            if not users:
                del self._class_users[before]
            del self._class_of[uid]
        if name:
            self._class_of[uid] = name
            self._class_users.setdefault(name, {})[uid] = None


NO_POD_GROUP = _PodGroup(None, None)
_NO_SETTINGS = GroupSettings(minimum=1, queue="", priority_class="", preemptibility="", subgroups=())


def _stated(request: Request, settings: GroupSettings | None, word: OwnerWord) -> OwnerSettings:
    """What the PodGroup says, else the owners; empty: nothing but what the pod says itself."""
    said = word.settings
    if settings is not None:
        said = OwnerSettings(
            settings.queue or said.queue,
            settings.priority_class or said.priority_class,
            settings.preemptibility or said.preemptibility,
        )
    default = word.default_priority_class
    if default != TRAIN and not (said.priority_class or request.priority or request.priority_class):
        said = replace(said, priority_class=default)
    return said


def _changes(request: Request, stated: OwnerSettings, priority: int | None, word: OwnerWord) -> dict[str, Any]:
    """The fields of the request in which the group has its say."""
    changes: dict[str, Any] = {}
    if stated.queue and stated.queue != request.queue:
        changes["queue"] = stated.queue
    if stated.preemptibility and stated.preemptibility != request.preemptibility:
        changes["preemptibility"] = stated.preemptibility
    if priority is not None:
        changes |= {"priority": priority, "priority_class": stated.priority_class}
    if word.group is not None:
        changes |= {"group": word.group, "subgroup": word.subgroup}
    return changes


def _pod_group(key: str, group: PodGroup) -> _PodGroup:
    try:
        settings = pod_groups.read(group)
    except InputError as error:
        problem = InputError(f"PodGroup {key} {error.field}", error.value, error.fix, code=error.code)
        return _PodGroup(None, None, problem, pod_groups.is_managed(group))
    gang = Gang(
        key,
        settings.minimum,
        tuple(Subgroup(each.name, each.minimum) for each in settings.subgroups),
        group.metadata.creation_timestamp or "",
        below_since=_below_since(group),
    )
    return _PodGroup(settings, gang, managed=pod_groups.is_managed(group))


def _same(one: _PodGroup | None, other: _PodGroup | None) -> bool:
    if one is None or other is None:
        return one is other
    same = (one.settings, one.gang, one.managed) == (other.settings, other.gang, other.managed)
    return same and str(one.problem) == str(other.problem)


def _below_since(group: PodGroup) -> int | None:
    """The scheduler writes it into the status, so that the next leader knows it too."""
    found = pod_groups.condition(group, pod_groups.BELOW_MINIMUM)
    if found is None or found.status != "True":
        return None
    return clock.seconds(found.last_transition_time)


def _missing(request: Request) -> InputError:
    return MissingPodGroup(
        f"metadata.annotations[{names.POD_GROUP}]",
        request.group,
        f"no PodGroup of this name exists in namespace {request.namespace}; create it, or remove the annotation",
    )


def _missing_class(request: Request, name: str) -> InputError:
    return MissingPriorityClass(
        f"priority class of the group of {request.key}",
        name,
        "no such PriorityClass exists; create it, or name another",
    )


def _started(pod: Pod) -> int | None:
    if not pod.status.start_time or not pod.spec.node_name or pod.metadata.deleting:
        return None
    return clock.seconds(pod.status.start_time)
