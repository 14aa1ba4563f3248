"""The log of fallback: bare lines for people, in the words of the document, then one line for machines (F06)."""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Mapping, Sequence

from apportion.cluster.log_text import OneLineFormatter, word

log = logging.getLogger(__name__)
_people = logging.getLogger(f"{__name__}.people")


def set_up() -> None:
    """Lines for people have no time and level, so that they look as in the document."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter("%(message)s"))
    _people.handlers[:] = [handler]
    _people.propagate = False


def reviewing(kind: str, name: str) -> None:
    _people.info("Reviewing %s: %s", kind.lower(), word(name))


def requests(kind: str, name: str, profiles: Sequence[str]) -> None:
    _people.info("%s %s requests %s MIG", kind.capitalize(), word(name), ", ".join(profiles))


def falls(name: str, path: str) -> None:
    for part in path.split(","):
        tiers = part.split("->")
        for wanted, given in itertools.pairwise(tiers):
            _people.info("%s not available, falling back to %s for pod %s", wanted, given, word(name))


def applied(name: str) -> None:
    _people.info("Applied fallback patch to pod %s", word(name))


def template(kind: str, name: str) -> None:
    _people.info("%s %s is not changed: fallback is decided for each of its pods", kind.capitalize(), word(name))


def decided(values: Mapping[str, object]) -> None:
    log.info("fallback %s", " ".join(f"{key}={word(value)}" for key, value in values.items()))
