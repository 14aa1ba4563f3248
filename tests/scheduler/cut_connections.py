"""A process that dies at one of its calls to the API: it is cut off for good, before the server acted or after."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from apportion.cluster import errors
from apportion.cluster.transport import HttpRequest, Response

FULL = os.environ.get("APPORTION_SOAK") == "1"
Onwards = Callable[[], Awaitable[Response]]


@dataclass
class Proxy:
    """Counts calls, and cuts the line for good at one of them."""

    cut_at: int | None = None
    after: bool = False
    calls: list[str] = field(default_factory=list)
    bindings: Counter[str] = field(default_factory=Counter)
    unanswered: list[str] = field(default_factory=list)  # calls that were under way when the process ended
    dead: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: HttpRequest, onwards: Onwards) -> Response:
        if self.dead.is_set():
            raise errors.Unreachable("this process is dead")
        number = len(self.calls)
        self.calls.append(f"{request.method} {request.path}")
        if number != self.cut_at:
            try:
                response = await onwards()
            except asyncio.CancelledError:
                self.unanswered.append(self.calls[number])
                raise
            return self._noted(request, response)
        if self.after:
            self._noted(request, await onwards())
        self.dead.set()
        raise errors.Unreachable("cut")

    def _noted(self, request: HttpRequest, response: Response) -> Response:
        if request.path.endswith("/binding") and response.status < 300:
            self.bindings[request.path] += 1
        return response


def cuts_of(calls: Sequence[str], *, writes: int, any_calls: int) -> list[tuple[int, bool]]:
    """Where to cut a story with these calls, and whether after the server acted: everywhere, or in CI a sample."""
    cuts = [(number, after) for number in range(len(calls)) for after in (False, True)]
    if FULL:
        return cuts
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    dice = random.Random(seed)
    writing = [cut for cut in cuts if not calls[cut[0]].startswith("GET")]
    return dice.sample(writing, min(writes, len(writing))) + dice.sample(cuts, any_calls)
