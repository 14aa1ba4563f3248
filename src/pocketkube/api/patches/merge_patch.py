"""JSON merge patch (RFC 7386): objects merge, null removes, everything else replaces."""

from __future__ import annotations

from typing import Any


def apply(target: Any, patch: Any) -> Any:
    """The patched value; neither argument is changed, but the result may share parts with both."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply(result.get(key), value)
    return result
