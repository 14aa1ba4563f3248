"""The fallback configuration of a pod: tiers, their order, and the nodes that are considered (F07).

A pod's annotation goes before its namespace's, and that before what the cluster is configured with.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from apportion.apis import names, profiles
from apportion.apis.errors import RequestError

PEND, REJECT = "pend", "reject"
MOST_TIERS = 16
ALIASES = {"7g.80gb": "7g.70gb"}
"""The full profile of the 70 GB model that simulations declare, by the name that it has on 80 GB."""
_BETWEEN = re.compile(r"\s*[>,]\s*")
_LABEL = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True)
class FallbackOptions:
    """The fallback configuration of one pod."""

    tiers: tuple[str, ...]
    chosen: bool = False
    """The tiers were set explicitly: only then dynamic slices fall back too (D01)."""
    at_end: str = PEND
    keep_memory: bool = False
    nodes: tuple[tuple[str, str], ...] = ()
    """Labels of the nodes that are considered."""
    products: tuple[str, ...] = ()
    """GPU products that are considered; empty means all."""


Place = tuple[str, Mapping[str, str]]
"""Where annotations were written, for the sentence of a refusal, and the annotations."""


def read(
    pod: Mapping[str, str], namespace: Mapping[str, str], tiers: Sequence[str], offered: Collection[str] = ()
) -> FallbackOptions:
    """`tiers` are those of the cluster, `offered` the devices of its nodes."""
    places: tuple[Place, ...] = (("metadata.annotations[{}]", pod), ("annotation {} of the namespace", namespace))
    written = _first(places, names.FALLBACK_TIERS)
    at_end = _first(places, names.FALLBACK_AT_END)
    keep = _first(places, names.FALLBACK_KEEP_MEMORY)
    nodes = _first(places, names.FALLBACK_NODES)
    products = _first(places, names.GPU_AFFINITY)
    return FallbackOptions(
        tiers=_with_aliases(parse(written[1], written[0]) if written else tuple(tiers), offered),
        chosen=written is not None,
        at_end=_one_of(at_end, (PEND, REJECT)) if at_end else PEND,
        keep_memory=keep is not None and _one_of(keep, ("true", "false")) == "true",
        nodes=tuple(_labels(*nodes)) if nodes else (),
        products=tuple(part.strip() for part in products[1].split(",") if part.strip()) if products else (),
    )


def parse(text: str, field: str) -> tuple[str, ...]:
    """`7g.70gb > 2g.20gb > 1g.10gb`, largest first; commas do as well."""
    tiers = tuple(profiles.from_wire(part) for part in _BETWEEN.split(text.strip()))
    for tier in tiers:
        if not profiles.well_formed(tier):
            raise RequestError(
                field, text, f"{tier!r} is not a MIG profile; use profiles such as 2g.20gb > 1g.10gb", code="BadTiers"
            )
    if len(set(tiers)) < len(tiers) or len(tiers) > MOST_TIERS:
        raise RequestError(
            field, text, f"use each profile once, at most {MOST_TIERS} profiles, largest first", code="BadTiers"
        )
    sizes = [(profiles.memory_gb(tier), profiles.compute(tier)) for tier in tiers]
    if sizes != sorted(sizes, reverse=True):
        raise RequestError(
            field, text, "a lower tier must not be larger than a higher one; list the largest first", code="BadTiers"
        )
    return tiers


def _with_aliases(tiers: tuple[str, ...], offered: Collection[str]) -> tuple[str, ...]:
    """An alias of a tier is a tier right above it, where nothing of that name exists (F02)."""
    for alias, tier in ALIASES.items():
        if tier in tiers and tier in offered and alias not in tiers and alias not in offered:
            at = tiers.index(tier)
            tiers = (*tiers[:at], alias, *tiers[at:])
    return tiers


def _first(places: Sequence[Place], annotation: str) -> tuple[str, str] | None:
    """The nearest value, with the field that it was found in. Empty counts as not written."""
    for field, written in places:
        value = written.get(annotation)
        if value is not None and not isinstance(value, str):
            raise RequestError(field.format(annotation), value, "must be a string", code="BadAnnotation")
        if value:
            return field.format(annotation), value
    return None


def _one_of(written: tuple[str, str], allowed: Sequence[str]) -> str:
    field, value = written
    if value not in allowed:
        raise RequestError(field, value, f"set {' or '.join(allowed)}", code="BadAnnotation")
    return value


def _labels(field: str, value: str) -> Iterator[tuple[str, str]]:
    for part in value.split(","):
        key, equals, wanted = part.strip().partition("=")
        if not equals or not all(map(_LABEL.fullmatch, key.split("/"))) or (wanted and not _LABEL.fullmatch(wanted)):
            raise RequestError(field, value, "use node labels as key=value, separated by commas", code="BadAnnotation")
        yield key, wanted
