"""All rules for the GPUs of one pod, in order.

The pod is plain JSON and is changed in place; the caller compares it with the original. The same rules apply to the
pod template of a Job (M02), so that its pods are created in their final form; shares are reviewed on pods only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apportion.admission import gpu_memory, requests, shares, slices, static_or_dynamic, updates
from apportion.admission.fallback import tiers
from apportion.admission.offers import Offers
from apportion.admission.requests import Want
from apportion.admission.shares import Sharing
from apportion.admission.static_or_dynamic import Mechanism

POD_ROOT = "spec"
TEMPLATE_ROOT = "spec.template.spec"


@dataclass(frozen=True)
class ClusterFacts:
    """What the rules must know besides the pod."""

    offers: Offers
    namespace_annotations: Mapping[str, str] = field(default_factory=dict)
    tiers: Sequence[str] = static_or_dynamic.DEFAULT_TIERS
    runtime_class: str | None = None
    """Set on pods with slices that name none; None leaves them alone (S02)."""
    sharing: Sharing = field(default_factory=Sharing)


def create(pod: dict[str, Any], facts: ClusterFacts, root: str = POD_ROOT) -> list[str]:
    """Apply the rules to a new pod; returns the changes for the log. Rejections are InputErrors."""
    spec = requests.mapping(pod.get("spec"), root)
    metadata = requests.mapping(pod.get("metadata"), "metadata")
    annotations = requests.mapping(metadata.get("annotations"), "metadata.annotations")
    asked = [(container, requests.slices(container)) for container in requests.containers(spec, root)]
    wants = [want for _, listed in asked for want in listed]
    done = shares.apply(pod, facts.sharing) if root == POD_ROOT else []
    slices.check(wants, facts.offers)
    if wants and _mechanism(wants, annotations, facts) is Mechanism.dynamic:
        slices.check_alone(wants)
        done += slices.rewrite(wants)
        done += slices.direct(spec, root)
        done += _runtime_class(spec, facts)
        done += gpu_memory.inject(metadata, [(container, gpu_memory.needed(listed)) for container, listed in asked])
    else:
        done += gpu_memory.inject(metadata, [(container, 0) for container, _ in asked])
    if metadata:
        pod["metadata"] = metadata
    return done


def update(pod: dict[str, Any], old: dict[str, Any], root: str = POD_ROOT) -> list[str]:
    """Repeat on a changed pod what was done when it was created."""
    return updates.repeat(pod, old, root) + (shares.repeat(pod, old) if root == POD_ROOT else [])


def _mechanism(wants: list[Want], annotations: Mapping[str, str], facts: ClusterFacts) -> Mechanism:
    preferred = static_or_dynamic.preference(annotations, facts.namespace_annotations)
    return static_or_dynamic.decide(
        slices.profiles_of(wants, ours=False),
        facts.offers,
        preferred=preferred,
        bound_to_dynamic=slices.profiles_of(wants, ours=True),
        tiers=tiers.read(annotations, facts.namespace_annotations, facts.tiers, facts.offers.static).tiers,
    )


def _runtime_class(spec: dict[str, Any], facts: ClusterFacts) -> list[str]:
    if facts.runtime_class is None or spec.get("runtimeClassName"):
        return []
    spec["runtimeClassName"] = facts.runtime_class
    return [f"runtimeClassName -> {facts.runtime_class}"]
