"""What was recorded is still what a real server says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.embedded.content import recording
from tests.grounds.control_plane import ControlPlane


@pytest.mark.real
def test_the_recording_is_what_a_real_server_says(control_plane: ControlPlane) -> None:
    async def send(method: str, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        media = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        code, text = control_plane.api._exchange(method, path, None if body is None else json.dumps(body), media)
        return code, json.loads(text)

    found = asyncio.run(recording.collect(send))
    control_plane.api.delete("/api/v1/namespaces/refused")
    recorded = {name: json.loads((recording.FOLDER / f"{name}.json").read_text()) for name in found}
    assert {name: _differing(found[name], recorded[name]) for name in found} == dict.fromkeys(found, {})


def _differing(found: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    return {name: (value, recorded.get(name)) for name, value in found.items() if value != recorded.get(name)}
