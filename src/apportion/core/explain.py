"""Why not, and what would help: the cheapest change that admits a pod that fits nowhere."""

from __future__ import annotations

from collections.abc import Mapping

from apportion.apis.request import Request
from apportion.core.fleet import Fleet
from apportion.core.policies import Policy
from apportion.core.reasons import Reason
from apportion.core.refusals import Refusal, from_reasons


def refuse(_fleet: Fleet, request: Request, _policy: Policy, reasons: Mapping[str, Reason]) -> Refusal:
    return from_reasons(request, reasons)
