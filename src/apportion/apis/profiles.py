"""How MIG profiles are spelt.

NVIDIA's tools write `1g.5gb+me`; a Kubernetes resource name cannot hold a plus. NVIDIA's device plugin
writes `nvidia.com/mig-1g.5gb.me`, slices made on demand are asked for as `mig.das.com/1g.5gb-plus-me`.
Inside, a profile is always written as NVIDIA's tools write it.
"""

from __future__ import annotations

import re

from apportion.apis import names
from apportion.apis.errors import ProfileError

__all__ = [
    "ProfileError",
    "compute",
    "from_wire",
    "memory_gb",
    "nvidia_profile",
    "nvidia_resource",
    "slice_profile",
    "slice_resource",
    "to_wire",
    "well_formed",
]

_PROFILE = re.compile(r"(\d{1,3})g\.(\d{1,5})gb((?:[+-][a-z]+(?:\.[a-z]+)*)?)", re.ASCII)
_DOTTED = re.compile(r"(\d+g\.\d+gb)\.(.+)", re.ASCII)


def to_wire(profile: str) -> str:
    """`1g.5gb+me` as a resource name may hold it: `1g.5gb-plus-me`."""
    return profile.replace("+", names.PLUS_ON_WIRE)


def from_wire(text: str) -> str:
    """The profile meant by a name on the wire: `1g.5gb-plus-me` or NVIDIA's `1g.5gb.me`."""
    text = text.replace(names.PLUS_ON_WIRE, "+")
    dotted = _DOTTED.fullmatch(text)
    return f"{dotted[1]}+{dotted[2]}" if dotted else text


def slice_profile(resource_name: str) -> str | None:
    """The profile of a `mig.das.com/...` resource, None for any other resource."""
    return _after(resource_name, names.SLICE_PREFIX)


def nvidia_profile(resource_name: str) -> str | None:
    """The profile of an `nvidia.com/mig-...` resource, None for any other resource."""
    return _after(resource_name, names.NVIDIA_MIG_PREFIX)


def slice_resource(profile: str) -> str:
    return names.SLICE_PREFIX + to_wire(profile)


def nvidia_resource(profile: str) -> str:
    """As NVIDIA's device plugin names it: the plus becomes a dot, a minus stays."""
    return names.NVIDIA_MIG_PREFIX + profile.replace("+", ".")


def well_formed(profile: str) -> bool:
    return _PROFILE.fullmatch(profile) is not None


def memory_gb(profile: str) -> int:
    """The gigabytes in the profile's name."""
    return int(_match(profile)[2])


def compute(profile: str) -> int:
    """The compute slices in the profile's name."""
    return int(_match(profile)[1])


def _match(profile: str) -> re.Match[str]:
    match = _PROFILE.fullmatch(profile)
    if match is None:
        raise ProfileError("profile", profile, "must look like 1g.5gb or 1g.5gb+me", code="MalformedProfile")
    return match


def _after(resource_name: str, prefix: str) -> str | None:
    if not resource_name.startswith(prefix) or len(resource_name) == len(prefix):
        return None
    return from_wire(resource_name[len(prefix) :])
