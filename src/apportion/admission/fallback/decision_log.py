"""The log of fallback: bare lines for people, in the words of the document, then one line for machines (F06)."""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)
_people = logging.getLogger(f"{__name__}.people")


def set_up() -> None:
    """Lines for people have no time and level, so that they look as in the document."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    _people.handlers[:] = [handler]
    _people.propagate = False


def reviewing(kind: str, name: str) -> None:
    _people.info("Reviewing %s: %s", kind.lower(), name)


def requests(kind: str, name: str, profiles: Sequence[str]) -> None:
    _people.info("%s %s requests %s MIG", kind.capitalize(), name, ", ".join(profiles))


def falls(name: str, path: str) -> None:
    for part in path.split(","):
        tiers = part.split("->")
        for wanted, given in itertools.pairwise(tiers):
            _people.info("%s not available, falling back to %s for pod %s", wanted, given, name)


def applied(name: str) -> None:
    _people.info("Applied fallback patch to pod %s", name)


def template(kind: str, name: str) -> None:
    _people.info("%s %s is not changed: fallback is decided for each of its pods", kind.capitalize(), name)


def decided(values: Mapping[str, object]) -> None:
    log.info("fallback %s", " ".join(f"{key}={value}" for key, value in values.items()))
