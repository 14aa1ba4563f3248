"""Pods that are placed together: all of them, or none. A pod without a gang is a group of one."""

from __future__ import annotations

import msgspec

from apportion.apis.identities import PodUID
from apportion.apis.request import Request


class Subgroup(msgspec.Struct, frozen=True):
    """Members of a group with a label, and how many of them belong to the minimum."""

    name: str
    minimum: int


class Gang(msgspec.Struct, frozen=True):
    """What is known of a group besides its pods. Without it every pod is a group of its own.

    Times are in seconds. `started` is when its minimum last began to run, None if it does not run; `below_since` is
    since when pods of it run without the minimum, None if that is not so. `gated` are pods with scheduling gates, by
    subgroup; for everything else they do not exist.
    """

    key: str
    minimum: int = 1
    subgroups: tuple[Subgroup, ...] = ()
    created: str = ""
    started: int | None = None
    below_since: int | None = None
    gated: tuple[tuple[str, int], ...] = ()


def key_of(request: Request) -> str:
    """Which group a pod belongs to."""
    return request.group_key


def successor_key(request: Request) -> str:
    """Who a place is kept for when a pod is moved: the next pod like it that its controller makes."""
    return f"successor/{request.namespace}/{request.owner}"


class Group(msgspec.Struct, frozen=True):
    """`minimum` members must have a place at the same time; `key` is the pod's uid in a group of one."""

    key: str
    members: tuple[Request, ...]
    minimum: int = 1

    @staticmethod
    def of(*members: Request, key: str = "") -> Group:
        """All of these pods together."""
        return Group(key or members[0].uid, members, len(members))

    @property
    def name(self) -> str:
        """For people: the first pod's name, and how many come with it."""
        others = len(self.members) - 1
        return f"{self.members[0].key} and {others} more" if others else self.members[0].key

    @property
    def priority(self) -> int:
        first = self.members[0].effective_priority
        return first if len(self.members) == 1 else max(member.effective_priority for member in self.members)

    @property
    def created(self) -> str:
        """When the first of them was created."""
        first = self.members[0].created
        return first if len(self.members) == 1 else min(member.created for member in self.members)

    @property
    def uids(self) -> tuple[PodUID, ...]:
        return tuple(member.uid for member in self.members)
