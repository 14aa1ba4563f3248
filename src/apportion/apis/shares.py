"""A share of a GPU, asked for by annotation: a fraction of its memory, or an amount of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from apportion.apis import names
from apportion.apis.errors import RequestError
from apportion.apis.pods import Pod

MILLI = 1000
LEAST_MILLI = 10
LARGEST_MIB = 2**31  # two pebibytes: beyond any GPU, and safe in every sum
LARGEST_DEVICES = 64

_DECIMAL = re.compile(r"0?\.(\d{1,3})|0(?:\.0{1,3})?", re.ASCII)
_INTEGER = re.compile(r"[1-9]\d*", re.ASCII)


class Share(msgspec.Struct, frozen=True):
    """Either `milli` (thousandths of a device's memory) or `memory_mib` is set, on each of `devices` GPUs."""

    container: str
    milli: int | None = None
    memory_mib: int | None = None
    devices: int = 1

    @property
    def annotation(self) -> str:
        return names.GPU_FRACTION if self.milli is not None else names.GPU_SHARE_MEMORY

    def mib_on(self, device_mib: int) -> int:
        """What the share takes of a device, in whole MiB."""
        if self.memory_mib is not None:
            return self.memory_mib
        assert self.milli is not None
        return self.milli * device_mib // MILLI

    def milli_on(self, device_mib: int) -> int:
        """The same in milli-GPU, rounded up: a queue is never charged less than what is held."""
        if self.milli is not None:
            return self.milli
        assert self.memory_mib is not None
        return -(-self.memory_mib * MILLI // device_mib)


def decimal(milli: int) -> str:
    """Thousandths as people write them: 500 is "0.5"."""
    return f"{milli // MILLI}.{milli % MILLI:03}".rstrip("0").rstrip(".")


def read_share(pod: Pod) -> Share | None:
    """The pod's share, None if it asks for none. A bad value is refused."""
    annotations = pod.metadata.annotations
    fraction, memory = annotations.get(names.GPU_FRACTION), annotations.get(names.GPU_SHARE_MEMORY)
    devices = annotations.get(names.GPU_FRACTION_DEVICES)
    if fraction is None and memory is None:
        if devices is not None:
            raise _bad(
                names.GPU_FRACTION_DEVICES, devices, f"requires {names.GPU_FRACTION} or {names.GPU_SHARE_MEMORY}"
            )
        return None
    if fraction is not None and memory is not None:
        raise _bad(names.GPU_FRACTION, fraction, f"use either {names.GPU_FRACTION} or {names.GPU_SHARE_MEMORY}")
    return Share(
        container=_container(pod, annotations),
        milli=None if fraction is None else _fraction(fraction),
        memory_mib=None if memory is None else _memory(memory),
        devices=1 if devices is None else _devices(devices),
    )


def _fraction(text: str) -> int:
    match = _DECIMAL.fullmatch(text)
    fix = 'must be a decimal number above 0 and below 1 with at most three decimal places, such as "0.5"'
    if match is None or match[1] is None:
        raise _bad(names.GPU_FRACTION, text, fix)
    milli = int(match[1].ljust(3, "0"))
    if milli < LEAST_MILLI:
        raise _bad(names.GPU_FRACTION, text, "must be at least 0.01")
    return milli


def _memory(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise _bad(names.GPU_SHARE_MEMORY, text, 'must be a whole number of MiB above 0, such as "2000"')
    if len(text) > len(str(LARGEST_MIB)) or int(text) > LARGEST_MIB:
        raise _bad(names.GPU_SHARE_MEMORY, text, f"must be at most {LARGEST_MIB} MiB; no GPU has more")
    return int(text)


def _devices(text: str) -> int:
    if not _INTEGER.fullmatch(text) or len(text) > len(str(LARGEST_DEVICES)) or int(text) > LARGEST_DEVICES:
        raise _bad(names.GPU_FRACTION_DEVICES, text, f"must be a whole number from 1 to {LARGEST_DEVICES}")
    return int(text)


def _container(pod: Pod, annotations: Mapping[str, str]) -> str:
    wanted = annotations.get(names.GPU_FRACTION_CONTAINER)
    known = [container.name for container in (*pod.spec.containers, *pod.spec.init_containers)]
    if wanted is None:
        return known[0] if pod.spec.containers else ""
    if wanted not in known:
        raise _bad(
            names.GPU_FRACTION_CONTAINER, wanted, f"no such container; the containers of the pod are {', '.join(known)}"
        )
    return wanted


def _bad(annotation: str, value: str, fix: str) -> RequestError:
    return RequestError(f"metadata.annotations[{annotation}]", value, fix, code="InvalidShare")
