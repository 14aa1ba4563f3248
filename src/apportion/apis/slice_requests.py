"""Which MIG slices a pod needs, and which of its containers use each.

The kubelet hands the devices of an ordinary init container on to later containers, and never those of a
sidecar or an app container. So the slices are dealt out as the kubelet deals out devices: an ordinary init
container takes what earlier ones left and then new ones; a sidecar or app container keeps what it takes.
"""

from __future__ import annotations

import msgspec

from apportion.apis import profiles
from apportion.apis.effective_resources import whole_count
from apportion.apis.errors import RequestError
from apportion.apis.pods import Container, PodSpec

LARGEST_COUNT = 1000


class SliceRequest(msgspec.Struct, frozen=True):
    """One slice: `container` names its claim, `containers` are all that use it, in the order they start."""

    container: str
    containers: tuple[str, ...]
    profile: str
    index: int


class _Slice(msgspec.Struct):
    profile: str
    users: list[str]
    owner: str | None = None


def read_slices(spec: PodSpec) -> tuple[SliceRequest, ...]:
    """The pod's slices in claim order: by container as they start, then by index."""
    dealt: dict[str, list[_Slice]] = {}
    loose: dict[str, list[_Slice]] = {}
    order: dict[str, int] = {}
    for kind, container in _starting_order(spec):
        order[container.name] = len(order)
        keeps = kind == "containers" or container.sidecar
        for profile, count in _counts(kind, container).items():
            _deal(container.name, profile, count, dealt, loose, keeps=keeps)
    return _named([piece for pieces in dealt.values() for piece in pieces], order)


def _starting_order(spec: PodSpec) -> list[tuple[str, Container]]:
    return [("initContainers", c) for c in spec.init_containers] + [("containers", c) for c in spec.containers]


def _counts(kind: str, container: Container) -> dict[str, int]:
    counts: dict[str, int] = {}
    resources = container.resources
    for name in {**resources.limits, **resources.requests}:
        profile = profiles.slice_profile(name)
        if profile is None:
            continue
        count = whole_count(kind, container, name)
        if count > LARGEST_COUNT:
            field = f"spec.{kind}[{container.name}].resources.limits[{name}]"
            raise RequestError(field, count, f"must be at most {LARGEST_COUNT}", code="TooManySlices")
        if count:
            counts[profile] = counts.get(profile, 0) + count
    return counts


def _deal(
    container: str,
    profile: str,
    count: int,
    dealt: dict[str, list[_Slice]],
    loose: dict[str, list[_Slice]],
    *,
    keeps: bool,
) -> None:
    pool = loose.setdefault(profile, [])
    taken = pool[:count]
    fresh = [_Slice(profile, []) for _ in range(count - len(taken))]
    dealt.setdefault(profile, []).extend(fresh)
    for piece in (*taken, *fresh):
        piece.users.append(container)
        if keeps:
            piece.owner = container
    if keeps:
        del pool[: len(taken)]
    else:
        pool.extend(fresh)


def _named(pieces: list[_Slice], order: dict[str, int]) -> tuple[SliceRequest, ...]:
    owners: dict[str, list[_Slice]] = {}
    for piece in pieces:
        owners.setdefault(piece.owner or piece.users[0], []).append(piece)
    wants: list[SliceRequest] = []
    for owner in sorted(owners, key=order.__getitem__):
        owned = sorted(owners[owner], key=lambda piece: piece.profile)
        wants += [SliceRequest(owner, tuple(p.users), p.profile, i) for i, p in enumerate(owned)]
    return tuple(wants)
