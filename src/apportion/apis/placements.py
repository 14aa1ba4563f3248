"""A slice on its placement: the one type with which all planes say where a slice is, or is to be."""

from __future__ import annotations

from typing import NamedTuple

from apportion.apis.identities import DeviceUUID


class SlicePlacement(NamedTuple):
    """A slice on a GPU: its profile and the memory units that it takes, `size` of them from `start`.

    In promises and snapshots it is written as a list of these four, so their order is part of the stored form.
    """

    gpu: DeviceUUID
    profile: str
    start: int
    size: int

    def overlaps(self, other: SlicePlacement) -> bool:
        return self.gpu == other.gpu and self.start < other.start + other.size and other.start < self.start + self.size

    def __str__(self) -> str:
        return f"{self.profile} at {self.start}+{self.size} of {self.gpu}"
