"""A pod read as a request, and how long it holds what it asks for.

Everybody who decides reads pods here, so that a pod asks for the same thing wherever it is looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from apportion.apis.errors import InputError
from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod


class Reading(NamedTuple):
    """What a pod asks for, and what is wrong with it.

    Annotations that cannot be read keep a scheduler that serves them from placing the pod (`problem`), but take
    nothing from what the pod holds of its node. Without a request nothing can be said about the pod.
    """

    request: Request | None
    problem: InputError | None = None


def read(pod: Pod) -> Reading:
    try:
        return Reading(parse_pod(pod))
    except InputError as error:
        problem = error
    plain = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations={}))
    try:
        return Reading(parse_pod(plain), problem)
    except InputError:
        return Reading(None, problem)


def ended(pod: Pod) -> bool:
    """No container is left, so the pod holds nothing of its node any more.

    Its phase says so, or it is being deleted and every container has ended. Sidecars are init containers that end
    after the others.
    """
    if pod.terminal:
        return True
    status = pod.status
    if not pod.metadata.deleting or any(each.state.running is not None for each in status.init_container_statuses):
        return False
    states = status.container_statuses
    return bool(states) and all(each.state.terminated is not None for each in states)
