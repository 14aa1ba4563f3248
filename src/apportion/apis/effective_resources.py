"""How much a pod holds of its node's resources, by Kubernetes' rules.

App containers run together, ordinary init containers one after the other before them, sidecars from their
turn on beside everything later. So a pod holds the larger of (apps + sidecars) and, for each ordinary init
container, itself plus the sidecars already started. Pod-level amounts replace the sum where they are given,
and the runtime's overhead comes on top.
"""

from __future__ import annotations

from apportion.apis import quantity
from apportion.apis.errors import QuantityError, RequestError
from apportion.apis.pods import Container, PodSpec, Quantities, ResourceRequirements

_POD_LEVEL = ("cpu", "memory")
_HUGE_PAGES = "hugepages-"


def effective_resources(spec: PodSpec) -> dict[str, int]:
    """The pod's request in ledger units; resources that it does not need are left out."""
    amounts = _containers(spec)
    if spec.resources is not None:
        for name, nanos in _requests(spec.resources, "spec.resources").items():
            if name in _POD_LEVEL or name.startswith(_HUGE_PAGES):
                amounts[name] = nanos
    for name, nanos in _read(spec.overhead, "spec.overhead").items():
        amounts[name] = amounts.get(name, 0) + nanos
    return {name: _units(name, nanos) for name, nanos in amounts.items() if nanos > 0}


def container_field(kind: str, container: Container, name: str) -> str:
    return f"spec.{kind}[{container.name}].resources.limits[{name}]"


def whole_count(kind: str, container: Container, name: str) -> int:
    """How many of an indivisible resource a container asks for."""
    resources = container.resources
    value = resources.requests.get(name, resources.limits.get(name, 0))
    field = container_field(kind, container, name)
    try:
        count = quantity.exact_int(value)
    except QuantityError as error:
        raise RequestError(field, value, error.reason, code=error.code) from error
    if count < 0:
        raise RequestError(field, value, "must not be negative", code="NegativeQuantity")
    return count


def _containers(spec: PodSpec) -> dict[str, int]:
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.containers:
        _add(running, _requests(container.resources, f"spec.containers[{container.name}].resources", container))
    for container in spec.init_containers:
        where = f"spec.initContainers[{container.name}].resources"
        wanted = _requests(container.resources, where, container)
        if container.sidecar:
            _add(sidecars, wanted)
            _raise(peak, sidecars)
        else:
            _raise(peak, {name: nanos + sidecars.get(name, 0) for name, nanos in wanted.items()})
    _add(running, sidecars)
    _raise(running, peak)
    return running


def _requests(resources: ResourceRequirements, where: str, container: Container | None = None) -> dict[str, int]:
    """Requests, with limits standing in where a request is missing (an API server fills it so)."""
    if not resources.limits:
        wanted = _read(resources.requests, f"{where}.requests")
    else:
        wanted = _read(resources.limits, f"{where}.limits")
        wanted.update(_read(resources.requests, f"{where}.requests"))
    if container is not None:
        for name in wanted:
            if _indivisible(name):
                whole_count(where.split("[", 1)[0].removeprefix("spec."), container, name)
    return wanted


def _indivisible(name: str) -> bool:
    """Extended resources, such as devices, come in whole numbers; Kubernetes' own have no domain or its own."""
    return "/" in name and "kubernetes.io/" not in name


def _read(amounts: Quantities, where: str) -> dict[str, int]:
    read: dict[str, int] = {}
    for name, value in amounts.items():
        try:
            nanos = quantity.nanos(value)
        except QuantityError as error:
            raise RequestError(f"{where}[{name}]", value, error.reason, code=error.code) from error
        if nanos < 0:
            raise RequestError(f"{where}[{name}]", value, "must not be negative", code="NegativeQuantity")
        read[name] = nanos
    return read


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, nanos in more.items():
        total[name] = total.get(name, 0) + nanos


def _raise(total: dict[str, int], floor: dict[str, int]) -> None:
    for name, nanos in floor.items():
        if nanos > total.get(name, 0):
            total[name] = nanos


def _units(name: str, nanos: int) -> int:
    units = -(-nanos // (quantity.NANOS_PER_MILLI if name == "cpu" else quantity.NANOS))
    return min(units, quantity.LARGEST)  # a sum of absurd amounts is capped as each of them is
