"""Why a GPU cannot be reserved.

NotReserved
├── Unreachable     the API server does not answer, or not now: tried again until it does
└── Misconfigured   somebody has to change something: tried a few times, then the container ends
"""

from __future__ import annotations


class NotReserved(Exception):
    """The text says what is wrong and what to do."""


class Unreachable(NotReserved):
    pass


class Misconfigured(NotReserved):
    pass
