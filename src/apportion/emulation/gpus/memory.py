"""How much memory the simulated program of a pod allocates on its emulated GPUs: an annotation of the pod says it."""

from __future__ import annotations

from collections.abc import Mapping

from apportion.apis import names

_LONGEST = 9  # digits


def allocated_mib(annotations: Mapping[str, str]) -> int:
    """MiB on each of its GPUs; nothing if the annotation is missing or is no number."""
    text = annotations.get(names.EMULATED_GPU_MEMORY, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST else 0
