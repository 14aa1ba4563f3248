"""A webhook configuration whose match condition is the matter."""

from __future__ import annotations

from typing import Any


def configuration(expression: str) -> dict[str, Any]:
    hook = {
        "name": "a.b.c",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "matchConditions": [{"name": "x", "expression": expression}],
    }
    return {"metadata": {"name": "conditions"}, "webhooks": [hook]}
