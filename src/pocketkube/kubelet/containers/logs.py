"""What containers print: one file per run, in the format of container runtimes, and reading as `kubectl logs` does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pocketkube.clock import Clock, nano_stamp

_CHUNK_LINES = 500
LONGEST_ENTRY = 16_384  # characters, as container runtimes cut lines
ROTATED_AT = 10 * 1024 * 1024  # as a kubelet does it; ours keeps one old file instead of four


@dataclass(frozen=True)
class LogSelection:
    """Query of the log subresource; `since` is a moment in seconds since the epoch."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: float | None = None
    limit_bytes: int | None = None


class ContainerLog:
    """The output of one run of a container."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._partial = {"stdout": "", "stderr": ""}
        self._changed = asyncio.Event()
        self._rotations = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] | None = path.open("a", buffering=1, encoding="utf-8", errors="replace", newline="\n")

    @property
    def closed(self) -> bool:
        return self._file is None

    def write(self, text: str, stream: str = "stdout") -> None:
        """Add output; a line counts once it has ended."""
        if self._file is None:
            return
        *whole, rest = (self._partial[stream] + text).split("\n")
        entries = [piece for line in whole for piece in _pieces(line)]
        while len(rest) >= LONGEST_ENTRY:
            entries.append(f"P {rest[:LONGEST_ENTRY]}")
            rest = rest[LONGEST_ENTRY:]
        self._partial[stream] = rest
        if entries:
            self._add(entries, stream)

    def close(self) -> None:
        if self._file is None:
            return
        for stream, rest in self._partial.items():
            if rest:
                self._add(_pieces(rest), stream)
        self._file.close()
        self._file = None
        self._wake()

    def last_lines(self, count: int, most: int) -> str:
        """The end of the log, for the message of a container that failed."""
        start = max(0, self._size() - LONGEST_ENTRY - most)
        lines = self._read(start)[0]
        if start:
            lines = lines[1:]  # the rest of an entry
        text = "".join(_shown(line, timestamps=False) for line in lines).removesuffix("\n")
        return "\n".join(text.split("\n")[-count:])[-most:]

    async def read(self, options: LogSelection) -> AsyncIterator[bytes]:
        """Chunks of the log; with `follow` until the run has ended."""
        rotations = self._rotations
        lines, offset = self._read(0)
        since = "" if options.since is None else nano_stamp(options.since)  # moments have one length: they sort as text
        kept = [line for line in lines if line >= since]
        if options.tail is not None:
            kept = kept[len(kept) - min(options.tail, len(kept)) :]
        left = options.limit_bytes
        while True:
            for start in range(0, len(kept), _CHUNK_LINES):
                shown = [_shown(line, timestamps=options.timestamps) for line in kept[start : start + _CHUNK_LINES]]
                chunk = "".join(shown).encode()[:left]
                left = None if left is None else left - len(chunk)
                if chunk:
                    yield chunk
                if left == 0:
                    return
            rotated = self._rotations != rotations
            if not options.follow or (self.closed and not rotated and self._size() <= offset):
                return
            if not rotated:
                await self._more(offset)
            if self._rotations == rotations:
                kept, offset = self._read(offset)
                continue
            # What was written before the file was put away comes first; all of it, if that has happened twice.
            rest, _ = self._read(offset if self._rotations == rotations + 1 else 0, self._old)
            fresh, offset = self._read(0)
            kept, rotations = rest + fresh, self._rotations

    @property
    def _old(self) -> Path:
        return self.path.with_name(f"{self.path.name}.1")

    def remove(self) -> None:
        for path in (self.path, self._old):
            path.unlink(missing_ok=True)

    async def _more(self, offset: int) -> None:
        changed = self._changed
        if self.closed or self._size() > offset:
            return
        await changed.wait()

    def _size(self) -> int:
        with contextlib.suppress(OSError):
            return self.path.stat().st_size
        return 0

    def _read(self, offset: int, path: Path | None = None) -> tuple[list[str], int]:
        """Whole lines from an offset on, and the offset after them."""
        try:
            with (path or self.path).open("rb") as file:
                file.seek(offset)
                data = file.read()
        except OSError:
            return [], offset
        end = data.rfind(b"\n") + 1
        return data[:end].decode(errors="replace").split("\n")[:-1], offset + end

    def _add(self, entries: list[str], stream: str) -> None:
        assert self._file is not None
        now = nano_stamp(self._clock.now())
        self._file.write("".join(f"{now} {stream} {entry}\n" for entry in entries))
        if self._size() > ROTATED_AT:
            self._file.close()
            self.path.replace(self._old)
            self._file = self.path.open("a", buffering=1, encoding="utf-8", errors="replace", newline="\n")
            self._rotations += 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class PodLogs:
    """The logs of one pod's containers, the present run and those before."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._clock = clock
        self._runs: dict[str, list[ContainerLog]] = {}

    def begin(self, container: str, restart: int) -> ContainerLog:
        """The log of a new run. As in a real kubelet the run before is kept, older ones are not."""
        log = ContainerLog(self.folder / container / f"{restart}.log", self._clock)
        runs = self._runs.setdefault(container, [])
        runs.append(log)
        while len(runs) > 2:  # noqa: PLR2004
            runs.pop(0).remove()
        return log

    def find(self, container: str, *, previous: bool) -> ContainerLog | None:
        runs = self._runs.get(container, [])
        wanted = 2 if previous else 1
        return runs[-wanted] if len(runs) >= wanted else None

    def close(self) -> None:
        for log in self._all():
            log.close()

    def _all(self) -> Iterator[ContainerLog]:
        for runs in self._runs.values():
            yield from runs


def _pieces(line: str) -> list[str]:
    """The entries of a line: a long one is several, all but the last marked as partial."""
    cuts = range(0, len(line) - LONGEST_ENTRY, LONGEST_ENTRY)
    return [f"P {line[cut : cut + LONGEST_ENTRY]}" for cut in cuts] + [f"F {line[len(cuts) * LONGEST_ENTRY :]}"]


def _shown(line: str, *, timestamps: bool) -> str:
    moment, _, tag, text = line.split(" ", 3)
    end = "\n" if tag == "F" else ""
    return f"{moment} {text}{end}" if timestamps else f"{text}{end}"
