"""What was recorded is still what a real server says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.environments.control_plane import ControlPlane
from tests.pocketkube.api.content import recording


@pytest.mark.real
def test_the_recording_is_what_a_real_server_says(control_plane: ControlPlane) -> None:
    api = control_plane.api

    async def send(
        method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        media = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        own = {"authorization": f"Bearer {api._user['token']}", "content-type": media}
        encoded = None if body is None else json.dumps(body)
        api._connection.close()  # one that was idle may have been closed at the other end
        api._connection.request(method, path, encoded, {**own, **(headers or {})})
        answer = api._connection.getresponse()
        return answer.status, json.loads(answer.read())

    found = asyncio.run(recording.collect(send))
    api.delete("/api/v1/namespaces/refused")
    for each in found["tables"].values():
        del each["object"]  # holds uids and times
    recorded = {name: json.loads((recording.FOLDER / f"{name}.json").read_text()) for name in found}
    for each in recorded["tables"].values():
        del each["object"]
    assert {name: _differing(found[name], recorded[name]) for name in found} == {name: {} for name in found}


def _differing(found: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    return {name: (value, recorded.get(name)) for name, value in found.items() if value != recorded.get(name)}
