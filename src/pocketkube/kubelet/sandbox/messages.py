"""What the kubelets and the process that interprets programs tell each other: frames on a socket."""

from __future__ import annotations

import asyncio

import msgspec

LARGEST_OUTPUT = 16_384  # characters of one message
_LENGTH = 4


class Start(msgspec.Struct, tag=True, array_like=True, kw_only=True):
    """Run a program. `work_seconds` and `work_code`: how long the work of an image takes that is not known, and its
    exit code."""

    id: int
    argv: list[str]
    env: dict[str, str]
    hostname: str
    root: str
    mounts: dict[str, tuple[str, str]]  # path of the container -> volume, and what of it
    final: bool = True
    work_seconds: float
    work_code: int = 0


class Signal(msgspec.Struct, tag=True, array_like=True):
    """SIGTERM, or the end without an answer."""

    id: int
    kill: bool


class Woken(msgspec.Struct, tag=True, array_like=True):
    """A time that was slept for is over."""

    id: int
    timer: int
    now: float


class Begun(msgspec.Struct, tag=True, array_like=True):
    """A program has its first turn."""

    id: int


class Output(msgspec.Struct, tag=True, array_like=True):
    id: int
    stream: str
    text: str


class Sleep(msgspec.Struct, tag=True, array_like=True):
    """Wait by the cluster's clock. With 0 seconds it asks for the time."""

    id: int
    timer: int
    seconds: float


class Forget(msgspec.Struct, tag=True, array_like=True):
    """A sleep that nobody waits for any more."""

    id: int
    timer: int


class Taken(msgspec.Struct, tag=True, array_like=True):
    """A signal has had its effect, and it was not the end."""

    id: int


class Ended(msgspec.Struct, tag=True, array_like=True):
    """`reason` is empty unless it is a special one, such as OOMKilled."""

    id: int
    code: int
    reason: str = ""


ToWorker = Start | Signal | Woken
FromWorker = Begun | Output | Sleep | Forget | Taken | Ended

to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def frame(message: ToWorker | FromWorker) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


async def read(reader: asyncio.StreamReader) -> bytes | None:
    """The next message, or None after the last."""
    try:
        length = await reader.readexactly(_LENGTH)
        return await reader.readexactly(int.from_bytes(length, "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
