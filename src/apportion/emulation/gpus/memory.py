"""How much memory the simulated program of a pod allocates on its emulated GPUs: an annotation of the pod says it."""

from __future__ import annotations

from collections.abc import Mapping

from apportion.apis import names

_LONGEST = 9  # digits
_SHOWN = 40  # characters of a value that is no number


def allocated_mib(annotations: Mapping[str, str]) -> int:
    """MiB on each of its GPUs; nothing if the annotation is missing or is no number."""
    text = annotations.get(names.EMULATED_GPU_MEMORY, "")
    return int(text) if _is_amount(text) else 0


def problem(annotations: Mapping[str, str]) -> str:
    """What is wrong with the annotation; empty if nothing is."""
    text = annotations.get(names.EMULATED_GPU_MEMORY)
    if text is None or _is_amount(text):
        return ""
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return (
        f"annotation {names.EMULATED_GPU_MEMORY} is {shown!r}, which is not a whole number of MiB from 0 to "
        f'{"9" * _LONGEST}: the pod counts as using no GPU memory. Write digits only, for example "1500"'
    )


def _is_amount(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST
