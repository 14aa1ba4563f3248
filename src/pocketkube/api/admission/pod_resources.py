"""What pods ask for altogether, as admission counts it: quantities in, quantities out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apportion.apis import quantity
from pocketkube.api.content import canonical_quantities

Obj = dict[str, Any]


def containers(spec: Obj) -> Iterator[Obj]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def of_pod(spec: Obj, part: str) -> Obj:
    """Requests or limits of a pod: the sum of its containers and sidecars, or what one init container needs."""
    running: dict[str, int] = {}
    highest: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        asked = _nanos(container, part)
        if container.get("restartPolicy") == "Always":
            _add(running, asked)
            asked = {}
        for name in {*running, *asked}:
            highest[name] = max(highest.get(name, 0), running.get(name, 0) + asked.get(name, 0))
    for container in spec.get("containers") or ():
        _add(running, _nanos(container, part))
    total = {name: max(running.get(name, 0), highest.get(name, 0)) for name in {*running, *highest}}
    if part == "requests" or total:
        _add(total, {name: quantity.nanos(text) for name, text in (spec.get("overhead") or {}).items()})
    styles = _styles(spec, part)
    return {name: text(amount, styles.get(name, "")) for name, amount in total.items()}


def text(nanos: int, like: str = "") -> str:
    """An amount as a quantity in the style of another one: binary stays binary."""
    units, rest = divmod(nanos, quantity.NANOS)
    if like.endswith("i") and not rest and units % 1024 == 0:
        return canonical_quantities.canonical(f"{units // 1024}Ki")
    return canonical_quantities.canonical(f"{nanos}n")


def _nanos(container: Obj, part: str) -> dict[str, int]:
    given = (container.get("resources") or {}).get(part) or {}
    return {name: quantity.nanos(amount) for name, amount in given.items()}


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _styles(spec: Obj, part: str) -> dict[str, str]:
    return {
        name: str(amount)
        for container in containers(spec)
        for name, amount in ((container.get("resources") or {}).get(part) or {}).items()
    }
