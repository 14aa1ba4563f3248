"""Who serves a pod's MIG devices: those cut beforehand, or those made on demand (D01).

`nvidia.com/mig-P` means either. One decision is made per pod, for all its containers alike, because one
scheduler places the whole pod.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence

from apportion.admission.offers import Offers
from apportion.apis import names
from apportion.apis.errors import RequestError


class Mechanism(enum.Enum):
    """How a MIG device comes into being."""

    static = "static"
    dynamic = "dynamic"


DEFAULT_TIERS = ("7g.70gb", "3g.40gb", "2g.20gb", "1g.10gb")
"""The fallback ladder of a cluster that configures none, largest first."""


def preference(pod: Mapping[str, str], namespace: Mapping[str, str]) -> Mechanism | None:
    """What the annotations of a pod, or else of its namespace, prefer; None if nobody wrote it."""
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
            raise RequestError(field, value, "write static or dynamic, or leave the annotation out") from None
    return None


def decide(
    wanted: Collection[str],
    offers: Offers,
    *,
    preferred: Mechanism | None = None,
    bound_to_dynamic: Collection[str] = (),
    tiers: Sequence[str] = DEFAULT_TIERS,
) -> Mechanism:
    """Decide for a pod that asks for `wanted` as nvidia.com/mig-P.

    `bound_to_dynamic` are the profiles that it asks for as mig.das.com/P, which nobody but us serves.
    A profile that is nowhere yet goes with the others; a pod that asks for no other waits for a node on
    which we can make it.
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
    """Some node lists devices of this profile, or of one that a pod would fall back to."""
    lower = tiers[tiers.index(profile) :] if profile in tiers else ()
    return profile in offers.static or not offers.static.isdisjoint(lower)


def _mixture(static: set[str], dynamic: set[str]) -> RequestError:
    cut, made = ", ".join(sorted(static)), ", ".join(sorted(dynamic))
    return RequestError(
        "spec",
        f"{cut}, {made}",
        f"{cut} is only there as devices cut beforehand, {made} is only made on demand, and one scheduler must "
        "place the whole pod: ask for one kind, or split the pod in two",
        code="MixedMechanisms",
    )
