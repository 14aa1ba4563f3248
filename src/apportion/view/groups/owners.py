"""Owners of pods: chains such as Job, CronJob, and what they say about the pods at their end.

Owners and pods arrive in any order. A chain is complete if every owner in it is known whose kind is followed. What a
chain says is worked out once for all pods of an owner that have the same labels of interest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

from apportion.apis.identities import PodUID
from apportion.apis.meta import OwnerReference
from apportion.apis.owner_kinds import grouping
from apportion.apis.owner_kinds.grouping import OwnerSettings
from apportion.apis.owner_kinds.rows import OwnerKindError
from apportion.apis.owner_kinds.table import OwnerKinds
from apportion.apis.pods import Pod
from apportion.apis.priorities import TRAIN
from apportion.core.groups import Gang, Subgroup

Json = Mapping[str, Any]
KindKey = tuple[str, str]  # API group and kind

_POD: KindKey = ("", "Pod")


class Following(Enum):
    """What is known of a kind that pods or their owners name."""

    WANTED = auto()  # its objects are not known yet
    FOLLOWED = auto()
    UNREADABLE = auto()  # not installed, or not allowed to be read


class OwnerWord(NamedTuple):
    """What the owners of a pod say about it. `group` is None if it is a group of its own; `owner` is the one whose
    pods form the group."""

    settings: OwnerSettings = OwnerSettings()
    default_priority_class: str = TRAIN
    group: str | None = None
    subgroup: str = ""
    gang: Gang | None = None
    owner: OwnerReference | None = None
    problem: OwnerKindError | None = None


NO_OWNER = OwnerWord()


class _Owner(NamedTuple):
    """A reference to an owner."""

    uid: str
    kind: KindKey


@dataclass(eq=False)
class _Chain:
    """Owners, topmost first, and what they say to pods by their labels of interest."""

    owners: tuple[Json, ...]
    complete: bool
    words: dict[tuple[str | None, ...], OwnerWord] = field(default_factory=dict)


class Owners:
    """Owners by uid. `pods` are all known pods: some own others.

    Nothing is followed unless somebody calls `follow`.
    """

    def __init__(self, table: OwnerKinds, pods: Mapping[PodUID, Pod]) -> None:
        self.table = table
        self._on_wanted: Callable[[KindKey], None] | None = None
        self._pods = pods
        self._objects: dict[str, Json] = {}
        self._following: dict[KindKey, Following] = {}
        self._chains: dict[str, _Chain] = {}  # by the uid of the owner that they begin with
        self._above: dict[str, str] = {}  # object or pod -> its owner, known or not
        self._below: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, uid: str) -> Json | None:
        return self._objects.get(uid)

    def word(self, pod: Pod) -> tuple[OwnerWord, bool]:
        """What the owners of a pod say, and whether all of them are known that will be."""
        reference = pod.metadata.controller
        if reference is None:
            self._link(pod.metadata.uid, None)
            return NO_OWNER, True
        self._link(pod.metadata.uid, reference.uid)
        chain = self._chains.get(reference.uid)
        if chain is None:
            owner = _Owner(reference.uid, _kind(reference.api_version, reference.kind))
            chain = self._chains[reference.uid] = self._walk(owner)
        labels = pod.metadata.labels
        interesting = tuple(map(labels.get, self.table.pod_labels))
        word = chain.words.get(interesting)
        if word is None:
            word = chain.words[interesting] = self._worked_out(chain, pod)
        return word, chain.complete

    def changed(self, old: Json | None, new: Json | None) -> list[PodUID]:
        """An owner came, changed or went; returns the pods that it concerns."""
        subject = new or old
        assert subject is not None
        uid = subject["metadata"]["uid"]
        if new is None:
            self._objects.pop(uid, None)
            self._link(uid, None)
        else:
            self._objects[uid] = new
            if old is not None and _facts(old) == _facts(new):
                return []
        return self.forget(uid)

    def forget(self, uid: str) -> list[PodUID]:
        """Work out anew what is said to pods below this owner or pod; returns these pods."""
        found: list[PodUID] = []
        stack, seen = [uid], {uid}
        while stack:
            each = stack.pop()
            self._chains.pop(each, None)
            for below in self._below.get(each, ()):
                if below not in seen:
                    seen.add(below)
                    stack.append(below)
                    if below in self._pods:
                        found.append(PodUID(below))
        return found

    def follow(self, on_wanted: Callable[[KindKey], None]) -> None:
        """Call `on_wanted` with each kind of the table that is named; `set_following` has to be called when its objects
        are known or cannot be read."""
        self._on_wanted = on_wanted
        self._chains.clear()

    def set_table(self, table: OwnerKinds) -> list[KindKey]:
        """Other rows count from now on; returns the kinds that have to be read anew, because other fields of theirs
        are of interest. Until then their objects are unknown."""
        kinds = {(group, kind) for each in (self.table, table) for group, kind, _ in each.kinds()}
        changed = {kind for kind in kinds if self.table.rows_of(kind) != table.rows_of(kind)}
        self.table = table
        self._chains.clear()
        for uid, known in list(self._objects.items()):
            if _kind(known["apiVersion"], known["kind"]) in changed:
                del self._objects[uid]
                self._link(uid, None)
        for kind in changed:
            self._following.pop(kind, None)
        return sorted(changed)

    def owned(self, uid: PodUID) -> bool:
        return uid in self._above

    def owns(self, uid: PodUID) -> bool:
        """Other objects name this pod as their owner."""
        return uid in self._below

    def pod_gone(self, uid: PodUID) -> None:
        self._link(uid, None)

    def set_following(self, kind: KindKey, following: Following) -> None:
        self._following[kind] = following
        if following is Following.UNREADABLE:
            for uid in [uid for uid, chain in self._chains.items() if not chain.complete]:
                del self._chains[uid]

    def _walk(self, owner: _Owner | None) -> _Chain:
        found: list[Json] = []
        seen: set[str] = set()
        while owner is not None and owner.uid not in seen:
            seen.add(owner.uid)
            known = self._objects.get(owner.uid) or self._pod(owner)
            if known is None:
                return _Chain(tuple(reversed(found)), complete=not self._expected(owner.kind))
            found.append(known)
            above = _controller(known)
            self._link(owner.uid, above.uid if above is not None else None)
            owner = above
        return _Chain(tuple(reversed(found)), complete=True)

    def _pod(self, owner: _Owner) -> Json | None:
        pod = self._pods.get(PodUID(owner.uid)) if owner.kind == _POD else None
        if pod is None:
            return None
        controller = pod.metadata.controller
        references = [controller] if controller is not None else []
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "labels": pod.metadata.labels,
                "ownerReferences": [
                    {"apiVersion": each.api_version, "kind": each.kind, "uid": each.uid, "controller": True}
                    for each in references
                ],
            },
        }

    def _expected(self, kind: KindKey) -> bool:
        """An object of this kind that is not known will be, unless it is gone."""
        if self._on_wanted is None:
            return False
        if kind == _POD:
            return True
        if kind not in self.table:
            return False
        following = self._following.get(kind)
        if following is None:
            self._following[kind] = Following.WANTED
            self._on_wanted(kind)
        return following is not Following.UNREADABLE

    def _worked_out(self, chain: _Chain, pod: Pod) -> OwnerWord:
        try:
            found = grouping.membership(chain.owners, pod.metadata.labels, self.table)
        except OwnerKindError as problem:
            return OwnerWord(problem=problem)
        if found.owner is None:
            return OwnerWord(found.settings, found.default_priority_class)
        name = grouping.group_name(found)
        gang = Gang(
            f"{pod.metadata.namespace}/{name}",
            found.minimum,
            tuple(Subgroup(each, minimum) for each, minimum in sorted(found.subgroups.items())),
            found.owner["metadata"].get("creationTimestamp") or "",
        )
        return OwnerWord(
            found.settings, found.default_priority_class, name, found.subgroup, gang, _reference(found.owner)
        )

    def _link(self, uid: str, above: str | None) -> None:
        before = self._above.get(uid)
        if before == above:
            return
        if before is not None:
            siblings = self._below[before]
            del siblings[uid]
            if not siblings:
                del self._below[before]
                self._chains.pop(before, None)
        if above is None:
            del self._above[uid]
        else:
            self._above[uid] = above
            self._below.setdefault(above, {})[uid] = None


def _controller(owner: Json) -> _Owner | None:
    for each in owner["metadata"].get("ownerReferences") or ():
        if each.get("controller"):
            return _Owner(each.get("uid", ""), _kind(each.get("apiVersion", ""), each.get("kind", "")))
    return None


def _reference(owner: Json) -> OwnerReference:
    meta = owner["metadata"]
    return OwnerReference(api_version=owner["apiVersion"], kind=owner["kind"], name=meta["name"], uid=meta["uid"])


def _kind(api_version: str, kind: str) -> KindKey:
    group, _, _ = api_version.rpartition("/")
    return group, kind


def _facts(owner: Json) -> Json:
    """What does not change with every write of its status."""
    return {**owner, "metadata": {**owner["metadata"], "resourceVersion": ""}}
