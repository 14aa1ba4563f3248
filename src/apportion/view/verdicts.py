"""A refusal with its sentence, and the refusals that no node has a part in."""

from __future__ import annotations

from typing import NamedTuple

from apportion.apis.request import Request
from apportion.core.reasons import Layer
from apportion.core.refusals import Refusal, wants_of


class Verdict(NamedTuple):
    """What all pods that ask for the same share."""

    refusal: Refusal
    sentence: str


def refused(request: Request, code: str, detail: str) -> Verdict:
    refusal = Refusal(request.uid, request.key, wants_of(request), Layer.PLACEMENT, code, 0, detail=detail)
    return Verdict(refusal, f"Cannot be placed now: {detail}.")


def leaving(request: Request) -> Verdict:
    return refused(request, "ClaimsLeaving", "its former slices are still being freed")


def no_sharing(request: Request) -> Verdict:
    return refused(request, "NoSharing", "GPU sharing is not switched on in this cluster")
