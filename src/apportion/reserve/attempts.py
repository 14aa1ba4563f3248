"""Finds the GPU and writes it on the pod, as often as it takes, and says in the log what happened."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from apportion.reserve import device, own_pod
from apportion.reserve.errors import Misconfigured, NotReserved

FIRST_SECONDS, LONGEST_SECONDS = 0.5, 30.0  # between attempts to reach the API server
SLOW_SECONDS, SLOW_ATTEMPTS = 10.0, 6  # where somebody has to change something


def reserve(environment: Mapping[str, str], sleep: Callable[[float], None]) -> bool:
    """Whether the GPU is written on the pod, after as many attempts as make sense."""
    slow, seconds = 0, FIRST_SECONDS
    while True:
        try:
            gpu = device.find(environment)
            own_pod.write(gpu, environment)
        except Misconfigured as error:
            slow += 1
            if slow == SLOW_ATTEMPTS:
                say("ERROR", f"gives up after {slow} attempts: {error}")
                return False
            say("ERROR", f"{error}; next attempt in {SLOW_SECONDS:g} s")
            sleep(SLOW_SECONDS)
        except NotReserved as error:
            say("WARNING", f"{error}; next attempt in {seconds:g} s")
            sleep(seconds)
            seconds = min(seconds * 2, LONGEST_SECONDS)
        else:
            say("INFO", f"reserved GPU {gpu} for pods that share it")
            return True


def say(level: str, text: str) -> None:
    """One line in the form of the other components."""
    line = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {level} reserve {line}", file=sys.stderr, flush=True)  # noqa: T201
