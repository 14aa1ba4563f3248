"""Whether static MIG devices or dynamic slices serve a pod (D01).

`nvidia.com/mig-P` can mean both. The decision is made once for all containers of a pod, because one scheduler
places the whole pod.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence

from apportion.admission.offers import Offers
from apportion.apis import names
from apportion.apis.errors import RequestError


class Mechanism(enum.Enum):
    """How MIG devices are created: in advance, or on demand."""

    static = "static"
    dynamic = "dynamic"


DEFAULT_TIERS = ("7g.70gb", "3g.40gb", "2g.20gb", "1g.10gb")
"""The default fallback tiers, largest first."""


def preference(pod: Mapping[str, str], namespace: Mapping[str, str]) -> Mechanism | None:
    """The preference in the annotations of a pod, otherwise of its namespace; None if there is none."""
    written = (
        (f"metadata.annotations[{names.MIG_MODE}]", pod.get(names.MIG_MODE)),
        (f"annotation {names.MIG_MODE} of the namespace", namespace.get(names.MIG_MODE)),
    )
    for field, value in written:
        if value is None:
            continue
        try:
            return Mechanism(value)
        except ValueError:
            raise RequestError(field, value, "set static or dynamic, or remove the annotation") from None
    return None


def decide(
    wanted: Collection[str],
    offers: Offers,
    *,
    preferred: Mechanism | None = None,
    bound_to_dynamic: Collection[str] = (),
    tiers: Sequence[str] = DEFAULT_TIERS,
) -> Mechanism:
    """Decide for a pod that requests `wanted` as nvidia.com/mig-P.

    `bound_to_dynamic` are the profiles that it requests as mig.das.com/P, which are always dynamic.
    A profile that no node offers is treated like the others; if there are no others, the pod is pending until a
    node offers it as a dynamic slice.
    """
    devices = {profile for profile in wanted if _has_devices(profile, offers, tiers)}
    only_static = devices - offers.dynamic
    only_dynamic = (set(wanted) & offers.dynamic) - devices | set(bound_to_dynamic)
    if only_static and only_dynamic:
        raise _mixture(only_static, only_dynamic)
    if only_static:
        return Mechanism.static
    if only_dynamic:
        return Mechanism.dynamic
    return preferred or (Mechanism.static if devices else Mechanism.dynamic)


def _has_devices(profile: str, offers: Offers, tiers: Sequence[str]) -> bool:
    """Some node has devices of this profile, or of a lower tier."""
    lower = tiers[tiers.index(profile) :] if profile in tiers else ()
    return profile in offers.static or not offers.static.isdisjoint(lower)


def _mixture(static: set[str], dynamic: set[str]) -> RequestError:
    cut, made = ", ".join(sorted(static)), ", ".join(sorted(dynamic))
    return RequestError(
        "spec",
        f"{cut}, {made}",
        f"{cut} is only available as a static device and {made} only as a dynamic slice, and one scheduler must "
        "place the whole pod; request one kind only, or split the pod",
        code="MixedMechanisms",
    )
