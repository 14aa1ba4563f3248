"""The server refuses what a real one refuses, in the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.pocketkube.api.content import case_requests, refused
from tests.pocketkube.api.content.serving import serving

RECORDED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("refusals.json").read_text())


async def test_bad_objects_are_refused_as_a_real_server_refuses_them() -> None:
    async with serving() as server:
        await case_requests.prepare(server.send)
        found = {name: await case_requests.creation(server.send, name) for name in refused.created()}
    assert differences(found, RECORDED["created"]) == {}


async def test_changes_are_allowed_and_refused_as_by_a_real_server() -> None:
    async with serving() as server:
        await case_requests.prepare(server.send)
        found = {name: await case_requests.update(server.send, name) for name in refused.UPDATES}
    assert differences(found, RECORDED["updated"]) == {}


def differences(found: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    return {name: (found.get(name), recorded.get(name)) for name in found if found[name] != recorded.get(name)}
