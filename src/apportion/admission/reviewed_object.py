"""The object of a review: only what the rules read is decoded, and only as much as a server would ever store.

Anybody who reaches the port can send an object. A few bytes of JSON can take fifty times their size once they are
Python objects, so values are counted before any is made, and fields that no rule reads are skipped as bytes. Rules
change the part that they see; the difference to the part as it came is a valid patch of the whole.
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec
import numpy as np
from msgspec import Raw

from apportion.apis import names

MOST_VALUES = 250_000
"""An API server stores 1.5 MiB per object, about 180,000 values if all of it were short environment variables."""

_PART = 64 * 1024


class TooManyValuesError(ValueError):
    """The object has more values than any that a server stores."""


class _Metadata(TypedDict, total=False):
    name: Any
    generateName: Any
    labels: Any
    annotations: Any
    ownerReferences: Any


class _Container(TypedDict, total=False):
    name: Any
    resources: Any


class _PodSpec(TypedDict, total=False):
    containers: list[_Container] | None
    initContainers: list[_Container] | None
    nodeName: Any
    schedulerName: Any
    runtimeClassName: Any


class _Pod(TypedDict, total=False):
    metadata: _Metadata | None
    spec: _PodSpec | None


class _SharingContainer(_Container, total=False):
    env: Any


class _SharingSpec(TypedDict, total=False):
    containers: list[_SharingContainer] | None
    initContainers: list[_SharingContainer] | None
    nodeName: Any
    schedulerName: Any
    runtimeClassName: Any


class _SharingPod(TypedDict, total=False):
    metadata: _Metadata | None
    spec: _SharingSpec | None


class _GuardedContainer(_SharingContainer, total=False):
    envFrom: Any


class _GuardedSpec(TypedDict, total=False):
    containers: list[_GuardedContainer] | None
    initContainers: list[_GuardedContainer] | None
    ephemeralContainers: list[_GuardedContainer] | None
    nodeName: Any
    schedulerName: Any
    runtimeClassName: Any


class _GuardedPod(TypedDict, total=False):
    metadata: _Metadata | None
    spec: _GuardedSpec | None


class _TemplateOwnerSpec(TypedDict, total=False):
    template: _Pod | None


class _TemplateOwner(TypedDict, total=False):
    metadata: _Metadata | None
    spec: _TemplateOwnerSpec | None


_POD = msgspec.json.Decoder(_Pod)
_SHARING: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_SharingPod)
_GUARDED = msgspec.json.Decoder(_GuardedPod)
_TEMPLATE_OWNER = msgspec.json.Decoder(_TemplateOwner)


def changeable(raw: Raw, *, pod: bool) -> dict[str, Any]:
    """What mutating rules read and change of a pod, or of an object with a pod template. Variables, of which there can
    be many, are read only of pods with a share.

    Call `check_values` before. Raises msgspec.DecodeError or RecursionError.
    """
    decoder: msgspec.json.Decoder[Any] = _POD if pod else _TEMPLATE_OWNER
    read: dict[str, Any] = decoder.decode(raw)
    if pod and _shares(read):
        read = _SHARING.decode(raw)
    return read


def guarded(raw: Raw) -> dict[str, Any]:
    """What the guard reads of a pod."""
    decoder: msgspec.json.Decoder[Any] = _GUARDED
    read: dict[str, Any] = decoder.decode(raw)
    return read


def _shares(pod: dict[str, Any]) -> bool:
    spec, annotations = pod.get("spec") or {}, (pod.get("metadata") or {}).get("annotations")
    asks = isinstance(annotations, dict) and (
        names.GPU_FRACTION in annotations or names.GPU_SHARE_MEMORY in annotations
    )
    return asks and spec.get("schedulerName") == names.KAI_SCHEDULER


def check_values(text: bytes | bytearray) -> None:
    """Raises TooManyValuesError. The quick count also counts what is inside of strings, so it can only be too high."""
    if _quick(text) > MOST_VALUES and _exact(text) > MOST_VALUES:
        raise TooManyValuesError(f"it has more than {MOST_VALUES} values")


def _quick(text: bytes | bytearray) -> int:
    return 1 + sum(map(text.count, (b",", b"{", b"[")))


def _exact(text: bytes | bytearray) -> int:
    """The number of values, as far as it is not above the limit."""
    count, start, in_string = 1, 0, False
    while start < len(text) and count <= MOST_VALUES:
        part = text[start : start + _PART]
        if (len(part) - len(part.rstrip(b"\\"))) % 2:  # do not cut an escape sequence
            part += text[start + _PART : start + _PART + 1]
        start += len(part)
        plain = np.frombuffer(part.replace(b"\\\\", b"__").replace(b'\\"', b"__"), np.uint8)
        quotes = (plain == ord('"')).view(np.uint8)
        inside = np.bitwise_xor.accumulate(quotes).view(np.bool_) ^ in_string
        opens = (plain == ord(",")) | (plain == ord("{")) | (plain == ord("["))
        count += int(np.count_nonzero(opens & ~inside))
        in_string = bool(inside[-1])
    return count
