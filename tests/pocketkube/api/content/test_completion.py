"""Objects that say little come out as a real server completes them: defaults, admission and all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.pocketkube.api.content import accepted, case_requests
from tests.pocketkube.api.content.serving import serving

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("completed.json").read_text())


async def test_objects_are_completed_as_by_a_real_server() -> None:
    async with serving() as server:
        await case_requests.prepare(server.send)
        found = {name: await case_requests.completed(server.send, name) for name in accepted.CASES}
    assert {name: (found[name], RECORDED[name]) for name in found if found[name] != RECORDED[name]} == {}
