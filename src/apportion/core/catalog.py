"""GPU models and their MIG geometry.

A GPU in MIG mode is a row of memory units; a profile covers `size` of them from one of its `starts`. What an agent
discovers on a node takes precedence; the shipped table is used for emulation and planning, and completes what discovery
does not report. Further models can be declared; they pass the same checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Protocol

import msgspec

from apportion.apis import profiles as spelling
from apportion.apis.errors import CatalogError, RequestError

LARGEST_UNITS = 16  # states are enumerated; no GPU sold has more than 12
LARGEST_MEMORY_MIB = 2**31


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The size of a slice. `limit` 0 means that only the placements limit how many fit on a GPU."""

    name: str
    size: int
    starts: tuple[int, ...]
    limit: int = 0
    memory_gb: int = 0
    memory_mib: int | None = None
    compute: int = 0
    gi_profile_id: int | None = None
    nvml_profile_index: int | None = None
    ci_profile_index: int | None = None
    multiprocessors: int | None = None
    engines: dict[str, int] = {}
    graphics: bool = False
    aliases: tuple[str, ...] = ()
    uncertain: bool = False
    uncertain_fields: tuple[str, ...] = ()

    @property
    def most(self) -> int:
        """The most slices of this profile that one empty GPU can hold."""
        return min(self.limit, len(self.starts)) if self.limit else len(self.starts)


class Model(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU model. Without profiles it cannot be sliced."""

    id: str
    product_names: tuple[str, ...]
    memory_mib: int
    units: int = 0
    profiles: tuple[Profile, ...] = ()
    engines: dict[str, int] = {}
    pci_device_ids: tuple[str, ...] = ()
    uncertain: bool = False
    confidence: str = "declared"
    emulated: bool = False

    def profile(self, name: str) -> Profile | None:
        """The profile of that name or alias."""
        for profile in self.profiles:
            if profile.name == name or name in profile.aliases:
                return profile
        return None

    @staticmethod
    def from_discovery(
        product: str, memory_mib: int, profiles: Sequence[DiscoveredProfile], base: Model | None = None
    ) -> Model:
        """The model as a node's agent found it; `base`, the shipped entry, fills in ids and engines."""
        found = tuple(_discovered(entry, base) for entry in profiles)
        span = max((max(p.starts, default=0) + p.size for p in found), default=0)
        model = Model(
            id=base.id if base else product,
            product_names=(product,),
            memory_mib=memory_mib or (base.memory_mib if base else 0),
            units=max(span, base.units) if base and found else span,
            profiles=found,
            engines=base.engines if base else {},
            confidence="discovered",
        )
        check(model)
        return model


class DiscoveredProfile(Protocol):
    """A profile as an agent reports it."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def starts(self) -> Sequence[int]: ...
    @property
    def limit(self) -> int: ...


class Catalog:
    """All models that are known, by product name. Later declarations override the shipped table."""

    def __init__(self, models: Iterable[Model] = ()) -> None:
        self._models: dict[str, Model] = {}
        self._found: dict[tuple[str, int | None], Model | None] = {}
        for model in models:
            self.declare(model)

    @classmethod
    def shipped(cls) -> Catalog:
        return cls(_shipped())

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def declare(self, model: Model) -> None:
        """Add a model, or replace the one of the same id, if its geometry is consistent."""
        check(model)
        self._models.pop(model.id, None)
        self._models[model.id] = model
        self._found.clear()

    def find(self, product: str, memory_mib: int | None = None) -> Model | None:
        """The model sold under a product name, as drivers or node labels spell it.

        Where a label's spelling fits two models, the memory decides if it is given, else the later declaration.
        """
        key = (product, memory_mib)
        if key not in self._found:
            self._found[key] = self._find(product, memory_mib)
        return self._found[key]

    def _find(self, product: str, memory_mib: int | None) -> Model | None:
        exact = [m for m in self._models.values() if product in m.product_names or product == m.id]
        loose = exact or [m for m in self._models.values() if _label(product) in {_label(n) for n in m.product_names}]
        if memory_mib and loose:
            wider = exact + [m for m in self._models.values() if _label(product) in map(_label, m.product_names)]
            return min(reversed(wider), key=lambda m: abs(m.memory_mib - memory_mib))
        return loose[-1] if loose else None

    def profile_names(self) -> tuple[str, ...]:
        """Every profile that some model has, smallest first."""
        found = {p.name: p for model in self._models.values() for p in model.profiles}
        return tuple(sorted(found, key=lambda name: (found[name].compute, found[name].memory_gb, name)))

    def least_milli(self, profile: str) -> int:
        """The smallest part of a GPU that a slice of this profile is on any model, in thousandths; 0 if none has it."""
        parts = [
            -(-found.size * 1000 // model.units)
            for model in self._models.values()
            if (found := model.profile(profile)) is not None
        ]
        return min(parts, default=0)

    def require_memory(self, mib: int, field: str = "memory") -> None:
        """Refuse more memory than the largest known GPU has."""
        largest = self.largest_memory_mib()
        if mib > largest:
            fix = f"no known GPU has more than {largest} MiB; request at most this much"
            raise RequestError(field, mib, fix, code="TooMuchMemory")

    def largest_memory_mib(self) -> int:
        return max((model.memory_mib for model in self._models.values()), default=0)


def check(model: Model) -> None:
    """Refuse geometry that contradicts itself."""
    where = f"models[{model.id}]"
    if not 0 <= model.units <= LARGEST_UNITS:
        raise CatalogError(f"{where}.units", model.units, f"must be between 0 and {LARGEST_UNITS}")
    if not 0 <= model.memory_mib <= LARGEST_MEMORY_MIB:
        raise CatalogError(f"{where}.memory_mib", model.memory_mib, f"must be between 0 and {LARGEST_MEMORY_MIB}")
    seen: set[str] = set()
    for profile in model.profiles:
        at = f"{where}.profiles[{profile.name}]"
        if not spelling.well_formed(profile.name):
            raise CatalogError(f"{at}.name", profile.name, "must look like 1g.5gb or 1g.5gb+me")
        if {profile.name, *profile.aliases} & seen:
            raise CatalogError(f"{at}.name", profile.name, "each profile must be listed once", code="DuplicateProfile")
        seen |= {profile.name, *profile.aliases}
        _check_places(at, profile, model.units)


def _check_places(at: str, profile: Profile, units: int) -> None:
    if not 1 <= profile.size <= units:
        raise CatalogError(f"{at}.size", profile.size, f"must be between 1 and the model's {units} units")
    if not profile.starts:
        raise CatalogError(f"{at}.starts", profile.starts, "requires at least one placement")
    if profile.limit < 0:
        raise CatalogError(f"{at}.limit", profile.limit, "must not be negative")
    for start in profile.starts:
        if not 0 <= start <= units - profile.size:
            raise CatalogError(f"{at}.starts", start, f"{profile.size} units from there exceed the {units} units")
    ordered = sorted(profile.starts)
    for first, second in pairwise(ordered):
        if second - first < profile.size:
            fix = f"starts {first} and {second} overlap for a profile of {profile.size} units"
            raise CatalogError(f"{at}.starts", profile.starts, fix, code="OverlappingStarts")


def _discovered(entry: DiscoveredProfile, base: Model | None) -> Profile:
    known = base.profile(entry.name) if base else None
    facts: Mapping[str, object] = {
        "name": entry.name,
        "size": entry.size,
        "starts": tuple(entry.starts),
        "limit": entry.limit,
    }
    if known is not None:
        return msgspec.structs.replace(known, **facts)
    gb, compute = spelling.memory_gb(entry.name), spelling.compute(entry.name)
    return msgspec.convert({**facts, "memory_gb": gb, "compute": compute}, Profile)


def _label(product: str) -> str:
    """A product name as it stands in a node label."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", product).strip("-._")[:63]


@cache
def _shipped() -> tuple[Model, ...]:
    text = resources.files("apportion.core").joinpath("data/models.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Model, ...])
