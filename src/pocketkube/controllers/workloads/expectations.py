"""What a controller did and its informer has not shown yet.

Without it a controller that looks again too soon would create or delete the same pods twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apportion.cluster.informer import Informer
from pocketkube.clock import Clock
from pocketkube.controllers.controller import Key, deleting

Json = dict[str, Any]
PATIENCE_SECONDS = 5.0


class Expectations:
    """Per reconciled object: writes that the informer must show before the next decision."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[Key, list[tuple[float, Callable[[], bool]]]] = {}

    def created(self, key: Key, informer: Informer[Json], obj: Json) -> None:
        meta = obj["metadata"]
        name, namespace, uid = meta["name"], meta.get("namespace"), meta["uid"]

        def seen() -> bool:
            found = informer.get(name, namespace)
            return found is not None and found["metadata"]["uid"] == uid

        self._expect(key, seen)

    def removed(self, key: Key, informer: Informer[Json], obj: Json) -> None:
        meta = obj["metadata"]
        name, namespace, uid = meta["name"], meta.get("namespace"), meta["uid"]

        def seen() -> bool:
            found = informer.get(name, namespace)
            return found is None or found["metadata"]["uid"] != uid or deleting(found)

        self._expect(key, seen)

    def written(self, key: Key, informer: Informer[Json], obj: Json) -> None:
        """An object was changed: wait for this version of it, or a later one."""
        meta = obj["metadata"]
        name, namespace, version = meta["name"], meta.get("namespace"), int(meta["resourceVersion"])

        def seen() -> bool:
            found = informer.get(name, namespace)
            return found is None or int(found["metadata"]["resourceVersion"]) >= version

        self._expect(key, seen)

    def wait(self, key: Key) -> float | None:
        """None if everything was seen; else seconds after which to look again in any case."""
        now = self._clock.now()
        left = [(until, seen) for until, seen in self._open.get(key, ()) if until > now and not seen()]
        if not left:
            self._open.pop(key, None)
            return None
        self._open[key] = left
        return 0.01 if len(left) == 1 else 0.05

    def _expect(self, key: Key, seen: Callable[[], bool]) -> None:
        if not seen():
            self._open.setdefault(key, []).append((self._clock.now() + PATIENCE_SECONDS, seen))
