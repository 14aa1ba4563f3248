"""Requests for MIG devices are changed into requests for dynamic slices (S01, S03, D03).

nvidia.com/mig-1g.5gb: 2      ->   mig.das.com/1g.5gb: 2          limits and requests alike
nvidia.com/mig-1g.5gb.me: 1   ->   mig.das.com/1g.5gb-plus-me: 1
schedulerName: default-scheduler -> das-scheduler
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from apportion.admission.offers import Offers
from apportion.admission.requests import SECTIONS, Want
from apportion.apis import names, profiles
from apportion.apis.errors import RequestError


def check(wants: Iterable[Want], offers: Offers) -> None:
    """Reject what can never be valid: a profile that no model has, one profile under two names."""
    seen: dict[tuple[str, str], Want] = {}
    for want in wants:
        offers.require(want.profile, field=want.field)
        other = seen.setdefault((want.container.field, want.profile), want)
        if other is not want:
            raise RequestError(
                want.field,
                want.count,
                f"the container also requests {want.profile} as {other.resource}; "
                f"use one of them, with the total number of slices",
                code="TwoSpellings",
            )


def check_alone(wants: Iterable[Want]) -> None:
    """Reject slices together with whole GPUs: a container gets one list of devices, not two."""
    for want in wants:
        whole = want.container.amount(names.NVIDIA_GPU)
        if whole:
            section = next(each for each in SECTIONS if names.NVIDIA_GPU in want.container.amounts(each))
            raise RequestError(
                f"{want.container.field}.resources.{section}[{names.NVIDIA_GPU}]",
                whole,
                f"the container also requests {want.resource}, and would get only one of the two; use two containers",
                code="SliceAndWholeGpu",
            )


def rewrite(wants: Iterable[Want]) -> list[str]:
    """Request dynamic slices instead; returns the changes for the log."""
    done = []
    for want in wants:
        resource = profiles.slice_resource(want.profile)
        if resource != want.resource:
            want.container.drop(want.resource)
            done.append(f"{want.resource} -> {resource} x {want.count} in container {want.container.name}")
        want.container.put(resource, want.count)
    return done


def direct(spec: dict[str, Any], root: str) -> list[str]:
    """Set a scheduler that places slices."""
    _refuse_preset_node(spec, root)
    current = spec.get("schedulerName") or names.DEFAULT_SCHEDULER
    if current in names.OUR_SCHEDULERS:
        return []
    if current != names.DEFAULT_SCHEDULER:
        raise RequestError(
            f"{root}.schedulerName",
            current,
            f"this scheduler does not support MIG slices; remove it, or set {' or '.join(names.OUR_SCHEDULERS)}",
            code="ForeignScheduler",
        )
    spec["schedulerName"] = names.DAS_SCHEDULER
    return [f"schedulerName -> {names.DAS_SCHEDULER}"]


def profiles_of(wants: Sequence[Want], *, ours: bool) -> set[str]:
    return {want.profile for want in wants if want.ours is ours}


def _refuse_preset_node(spec: dict[str, Any], root: str) -> None:
    node = spec.get("nodeName")
    if node:
        raise RequestError(
            f"{root}.nodeName",
            node,
            "a pod with MIG slices must be placed by the scheduler, otherwise it gets no slices; "
            f"remove nodeName and use nodeSelector {names.HOSTNAME_LABEL} instead",
            code="PresetNode",
        )
