"""How nodes and places are ranked.

    fragmentation   keep what is left useful for what is usually asked for (the default)
    pack            fill the fullest node first, so that others stay empty
    spread          use the emptiest node and GPU first
    first-fit       the first node, GPU and place by name and number
    best-fit        the place that has least left afterwards

A policy carries the mix that `fragmentation` reads; the arithmetic is in `placement.node_prices`.
"""

from __future__ import annotations

from apportion.apis.errors import RequestError
from apportion.apis.request import POLICIES, Request
from apportion.core.fleet import Fleet
from apportion.core.grid import Grid
from apportion.core.placement import fragmentation_tables, slice_value
from apportion.core.placement.request_mix import Mix

FRAGMENTATION, PACK, SPREAD, FIRST_FIT, BEST_FIT = POLICIES

_PLACE = 64  # more than any GPU has units


class Policy:
    """One policy with its mix. Without a given mix it learns one from the pods it decides about."""

    def __init__(self, name: str = FRAGMENTATION, mix: Mix | None = None) -> None:
        if name not in POLICIES:
            raise RequestError("policy", name, f"must be one of {', '.join(POLICIES)}", code="UnknownPolicy")
        self.name = name
        self.mix = mix if mix is not None else Mix()
        self.tables = fragmentation_tables.build(Mix(), ())
        self.edition = 0  # grows whenever prices change though nothing in the fleet did
        self._built: tuple[int, int] | None = None
        self._siblings: dict[str, Policy] = {name: self}

    @staticmethod
    def named(name: str) -> Policy:
        return Policy(name)

    def for_request(self, request: Request) -> Policy:
        """This policy, or the one that the pod itself asks for."""
        name = request.policy or self.name
        sibling = self._siblings.get(name)
        if sibling is None:
            sibling = self._siblings[name] = Policy(name, self.mix)
            sibling._siblings = self._siblings
        return sibling

    def prepare(self, fleet: Fleet) -> None:
        """Make the tables anew if the mix or the fleet's stock has changed since."""
        if self.name != FRAGMENTATION:
            return
        wanted = (self.mix.generation, fleet.stock)
        if wanted != self._built:
            self._built = wanted
            self.tables = fragmentation_tables.build(self.mix, fleet)
            self.edition += 1

    def slice_price(self, grid: Grid, before: int, after: int, start: int) -> int:
        """What one slice on one place costs within its node; equal places go to the higher start."""
        match self.name:
            case "fragmentation":
                return (slice_value.layout_value(grid, before) - slice_value.layout_value(grid, after)) * _PLACE - start
            case "first-fit":
                return 0
            case "spread":
                return -grid.free_units(after) * _PLACE - start
            case _:
                return grid.free_units(after) * _PLACE - start
