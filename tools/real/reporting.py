"""One line per piece on the terminal, with the time it took; and the one line that ends a run that cannot go on."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self


class CannotBuildError(Exception):
    """Something is missing. Its text says what, and what to do about it, in one line."""


class Step:
    """`with Step("kubelet 1.34.4")`: counts the seconds on a terminal, prints start and end elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._ticker.start()
        else:
            print(f"{self._what}: building", file=sys.stderr, flush=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        if self._ticker.is_alive():
            self._ticker.join()
        clear = "\r\033[K" if sys.stderr.isatty() else ""
        verdict = "done" if kind is None else "failed"
        print(f"{clear}{self._what}: {verdict} in {self._seconds()} s", file=sys.stderr, flush=True)

    def _tick(self) -> None:
        while not self._over.wait(1):
            print(f"\r\033[K{self._what}: {self._seconds()} s", end="", file=sys.stderr, flush=True)

    def _seconds(self) -> int:
        return round(time.monotonic() - self._began)
