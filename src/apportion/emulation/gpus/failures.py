"""Failure injection for emulated GPUs.

The annotation `apportion.io/emulated-failures` of the Node holds a JSON list:

    [{"kind": "busy"},                                  every slice is busy when it is to be destroyed
     {"kind": "refuse", "gpu": 1, "times": 2},          the next two slices on GPU 1 are not made
     {"kind": "slow", "seconds": 5},                    making and destroying takes 5 s
     {"kind": "lost", "gpu": 0}]                        GPU 0 does not answer

Without `gpu` all are meant, without `times` it lasts until the annotation goes.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Mapping
from typing import Literal

import msgspec

from apportion.apis import names
from apportion.node.hardware.partitioner import Busy, GpuLost, Refused


class Call(enum.Enum):
    create = "create"
    destroy = "destroy"


class Failure(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    kind: Literal["busy", "refuse", "slow", "lost"]
    gpu: int | None = None
    times: int | None = None
    seconds: float = 5.0

    def strikes(self, kind: str, gpu: int) -> bool:
        return self.kind == kind and self.gpu in (None, gpu) and (self.times is None or self.times > 0)

    def used(self) -> None:
        if self.times is not None:
            self.times -= 1


class Failures:
    def __init__(self, text: str = "", entries: list[Failure] | None = None) -> None:
        self.text = text
        self._entries = entries or []

    @classmethod
    def parse(cls, annotations: Mapping[str, str], current: Failures) -> Failures:
        """The configured failures; setting the same text again does not reset their counts."""
        text = annotations.get(names.EMULATED_FAILURES, "")
        if text == current.text:
            return current
        try:
            return cls(text, msgspec.json.decode(text, type=list[Failure]) if text else [])
        except msgspec.DecodeError as error:
            raise Refused(
                f"node annotation {names.EMULATED_FAILURES}: {text!r}: {error}; "
                "it must be a JSON list of failures of kind busy, refuse, slow or lost"
            ) from None

    def lost(self, gpu: int) -> bool:
        return any(entry.strikes("lost", gpu) for entry in self._entries)

    async def before(self, call: Call, gpu: int, what: str) -> None:
        """Play the faults that hit this call."""
        for entry in self._entries:
            if entry.strikes("slow", gpu):
                entry.used()
                await asyncio.sleep(entry.seconds)
        if self.lost(gpu):
            raise GpuLost(f"{what}: the GPU does not respond")
        for entry in self._entries:
            if call is Call.create and entry.strikes("refuse", gpu):
                entry.used()
                raise Refused(f"{what}: the driver refused to create the slice")
            if call is Call.destroy and entry.strikes("busy", gpu):
                entry.used()
                raise Busy(f"{what}: a process still uses it")
