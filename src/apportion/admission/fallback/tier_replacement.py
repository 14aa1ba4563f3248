"""A pod some tiers lower: its devices, in every container alike, and the annotation that says so.

All containers step together. A device of the last tier, or of no tier, stays what it is. Where two
profiles of a container meet on one tier their numbers add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apportion.admission import gpu_memory, requests
from apportion.admission.fallback.tiers import FallbackOptions
from apportion.admission.requests import ManifestContainer, Want
from apportion.apis import names, profiles

ARROW = "->"
_KEEPING: dict[object, tuple[bool, ...]] = {"true": (True,), "false": (False,)}
"""Whether memory was kept, by the pod's annotation; without one its namespace may have decided either way."""


def most_steps(wanted: Sequence[str], tiers: Sequence[str]) -> int:
    """How often the pod can step down until nothing can go lower."""
    return max((len(tiers) - 1 - tiers.index(profile) for profile in wanted if profile in tiers), default=0)


def lower(counts: Mapping[str, int], options: FallbackOptions, steps: int) -> dict[str, int]:
    """One container's devices that many steps down."""
    targets = {profile: _tier(profile, options.tiers, steps) for profile in counts}
    return _moved(counts, targets, keep_memory=options.keep_memory)


def path(wanted: Sequence[str], tiers: Sequence[str], steps: int) -> str:
    """`7g.70gb->3g.40gb->2g.20gb`; several profiles with commas between."""
    found = []
    for profile in sorted({each for each in wanted if each in tiers}, key=tiers.index):
        start = tiers.index(profile)
        passed = tiers[start : start + steps + 1]
        if len(passed) > 1:
            found.append(ARROW.join(passed))
    return ",".join(found)


def step(pod: dict[str, Any], root: str, options: FallbackOptions, steps: int) -> str:
    """Bring a pod's JSON that many steps down; returns the path, empty if nothing changes."""
    asked = read(pod, root)
    wanted = [want.profile for _, wants in asked for want in wants]
    taken = path(wanted, options.tiers, steps)
    if not taken:
        return ""
    for container, wants in asked:
        _replace(container, wants, lower(_counts(wants), options, steps))
    metadata = pod["metadata"] = requests.mapping(pod.get("metadata"), "metadata")
    if any(want.ours for _, wants in asked for want in wants):
        after = [(container, gpu_memory.needed(wants)) for container, wants in read(pod, root)]
        gpu_memory.inject(metadata, after)
    annotations = metadata["annotations"] = metadata.get("annotations") or {}
    annotations[names.FALLBACK_APPLIED] = taken
    return taken


def read(pod: dict[str, Any], root: str) -> list[tuple[ManifestContainer, list[Want]]]:
    spec = requests.mapping(pod.get("spec"), root)
    return [(container, requests.slices(container)) for container in requests.containers(spec, root)]


def repeat(new: dict[str, Any], old: dict[str, Any], root: str) -> list[str]:
    """A manifest that is applied again has the values from before the fallback: replace them with those of the pod
    (D05).

    Only where the steps that the old pod's annotation names lead exactly to the devices that it has; the current tiers
    do not matter. Anything else is a change of a pod's devices, and the API server refuses that in its own words.
    """
    notes = requests.mapping(requests.mapping(old.get("metadata"), "metadata").get("annotations"), "annotations")
    taken = notes.get(names.FALLBACK_APPLIED)
    targets = _targets(taken) if isinstance(taken, str) else {}
    if not targets:
        return []
    keeping = _KEEPING.get(notes.get(names.FALLBACK_KEEP_MEMORY), (False, True))
    before = {container.name: (container, wants) for container, wants in read(old, root)}
    done = []
    for container, wants in read(new, root):
        held, had = before.get(container.name, (None, []))
        if held is None or _resources(wants) == _resources(had):
            continue
        fresh = [want for want in wants if _resources(had).get(want.resource) != want.count]
        goal = _counts(had)
        meant = (_moved(_counts(some), targets, keep_memory=keep) for some in (fresh, wants) for keep in keeping)
        if any(devices == goal for devices in meant):
            _copy(container, held)
            done.append(f"container {container.name} keeps {', '.join(_resources(had))}")
    if done:
        metadata = new["metadata"] = requests.mapping(new.get("metadata"), "metadata")
        metadata["annotations"] = (metadata.get("annotations") or {}) | {names.FALLBACK_APPLIED: taken}
    return done


def _counts(wants: Sequence[Want]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for want in wants:
        counts[want.profile] = counts.get(want.profile, 0) + want.count
    return counts


def _resources(wants: Sequence[Want]) -> dict[str, int]:
    return {want.resource: want.count for want in wants}


def _tier(profile: str, tiers: Sequence[str], steps: int) -> str:
    if profile not in tiers:
        return profile
    return tiers[min(tiers.index(profile) + steps, len(tiers) - 1)]


def _targets(taken: str) -> dict[str, str]:
    """From an annotation: where each profile went. Anybody can write one; what is no path counts as none."""
    paths = [part.split(ARROW) for part in taken.split(",")]
    return {tiers[0]: tiers[-1] for tiers in paths if len(tiers) > 1 and all(map(profiles.well_formed, tiers))}


def _moved(counts: Mapping[str, int], targets: Mapping[str, str], *, keep_memory: bool) -> dict[str, int]:
    result: dict[str, int] = {}
    for profile, count in counts.items():
        target = targets.get(profile, profile)
        number = _same_memory(profile, target, count) if keep_memory and target != profile else count
        result[target] = result.get(target, 0) + number
    return result


def _same_memory(profile: str, target: str, count: int) -> int:
    return -(-count * profiles.memory_gb(profile) // max(1, profiles.memory_gb(target)))


def _replace(container: ManifestContainer, wants: Sequence[Want], counts: Mapping[str, int]) -> None:
    ours = any(want.ours for want in wants)
    for want in wants:
        container.drop(want.resource)
    for profile, count in counts.items():
        kept = next((want.resource for want in wants if want.profile == profile), None)
        container.put(kept or _resource(profile, ours=ours), count)


def _resource(profile: str, *, ours: bool) -> str:
    return profiles.slice_resource(profile) if ours else profiles.nvidia_resource(profile)


def _copy(container: ManifestContainer, held: ManifestContainer) -> None:
    """Take over another container's devices, with their memory."""
    for section in requests.SECTIONS:
        for resource in [name for name in container.amounts(section) if _device(name)]:
            del container.amounts(section)[resource]
    resources = container.body["resources"] = container.body.get("resources") or {}
    for section in requests.SECTIONS:
        devices = {name: amount for name, amount in held.amounts(section).items() if _device(name)}
        if devices:
            resources[section] = (resources.get(section) or {}) | devices


def _device(resource: str) -> bool:
    return resource.startswith((names.NVIDIA_MIG_PREFIX, names.SLICE_PREFIX)) or resource == names.GPU_MEMORY
