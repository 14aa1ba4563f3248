"""The resource requests of containers, read from the JSON of an admission review.

Only the parts that the rules need are read, each with its path in the manifest. Limits and requests of these
devices are one amount: Kubernetes requires that they are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from apportion.apis import profiles, quantity
from apportion.apis.errors import InputError, QuantityError, RequestError

SECTIONS = ("limits", "requests")
MOST_SLICES = 100_000
"""Far above what any node has; keeps sums within what Kubernetes can count."""
MOST_CONTAINERS = 1000
"""Of one list of a pod. A kubelet could not run as many; a review of more would keep others waiting."""


@dataclass(frozen=True)
class ManifestContainer:
    """One container or init container, with its place in the manifest."""

    field: str
    body: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.body.get("name", ""))

    def amounts(self, section: str) -> dict[str, Any]:
        """The limits or requests as they stand; empty if there are none."""
        resources = mapping(self.body.get("resources"), f"{self.field}.resources")
        return mapping(resources.get(section), f"{self.field}.resources.{section}")

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for section in SECTIONS for name in self.amounts(section)))

    def amount(self, resource: str) -> int | None:
        """How many of a resource the container asks for, None if it does not name it."""
        found: dict[str, int] = {}
        for section in SECTIONS:
            amounts = self.amounts(section)
            if resource in amounts:
                found[section] = _whole(amounts[resource], f"{self.field}.resources.{section}[{resource}]")
        if len(set(found.values())) > 1:
            raise RequestError(
                f"{self.field}.resources.requests[{resource}]",
                found["requests"],
                f"limits and requests must be equal, and the limit is {found['limits']}",
                code="UnequalAmounts",
            )
        return next(iter(found.values()), None)

    def put(self, resource: str, count: int) -> None:
        """Write one amount into limits and requests; equal ones stay as their owner spelt them."""
        resources = self.body["resources"] = self.body.get("resources") or {}
        for section in SECTIONS:
            amounts = resources[section] = resources.get(section) or {}
            if resource not in amounts or quantity.exact_int(amounts[resource]) != count:
                amounts[resource] = str(count)

    def drop(self, resource: str) -> None:
        for section in SECTIONS:
            self.amounts(section).pop(resource, None)


@dataclass(frozen=True)
class Want:
    """Slices that one container asks for under one resource name."""

    container: ManifestContainer
    resource: str
    profile: str
    count: int

    @property
    def field(self) -> str:
        section = next(section for section in SECTIONS if self.resource in self.container.amounts(section))
        return f"{self.container.field}.resources.{section}[{self.resource}]"

    @property
    def ours(self) -> bool:
        """Asked for as mig.das.com/P, in whatever spelling of P."""
        return profiles.slice_profile(self.resource) is not None


def containers(spec: dict[str, Any], root: str) -> Iterator[ManifestContainer]:
    """All containers that can ask for devices, init containers first, as they start."""
    for key in ("initContainers", "containers"):
        field = f"{root}.{key}"
        listed = spec.get(key) or []
        if not isinstance(listed, list):
            raise RequestError(field, listed, "must be a list of containers")
        if len(listed) > MOST_CONTAINERS:
            raise RequestError(
                field, len(listed), f"use at most {MOST_CONTAINERS} containers", code="TooManyContainers"
            )
        for index, body in enumerate(listed):
            yield ManifestContainer(f"{field}[{index}]", mapping(body, f"{field}[{index}]"))


def slices(container: ManifestContainer) -> list[Want]:
    """The slices a container asks for; an amount of 0 asks for nothing (S03)."""
    wants = []
    for resource in container.names():
        profile = profiles.nvidia_profile(resource) or profiles.slice_profile(resource)
        count = container.amount(resource) if profile else None
        if profile and count:
            wants.append(Want(container, resource, profile, count))
    return wants


def mapping(value: Any, field: str) -> dict[str, Any]:
    """A JSON object, or an empty one where nothing is written."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(field, value, "must be an object")
    return value


def _whole(value: Any, field: str) -> int:
    try:
        count = quantity.exact_int(value)
    except QuantityError as error:
        raise QuantityError(value, f'{error.reason}; use a whole number such as "1"', field=field) from None
    if count < 0:
        raise QuantityError(value, 'must not be negative; use a whole number such as "1", or 0 for none', field=field)
    if count > MOST_SLICES:
        raise InputError(field, value, f"no node has more than {MOST_SLICES}; use a smaller number")
    return count
