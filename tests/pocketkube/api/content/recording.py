"""Writes what a real kube-apiserver says about the cases of `refused.py` and `accepted.py`.

python -m tests.pocketkube.api.content.recording https://127.0.0.1:6443 TOKEN
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from tests.pocketkube.api.content import accepted, case_requests, refused

FOLDER = Path(__file__).parent


async def record(server: str, token: str) -> None:
    headers = {"authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def send(
            method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str] | None = None
        ) -> tuple[int, dict[str, Any]]:
            media = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
            data = None if body is None else json.dumps(body)
            async with session.request(
                method, server + path, data=data, headers={"content-type": media, **(headers or {})}
            ) as response:
                return response.status, await response.json()

        for name, found in (await collect(send)).items():
            (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


async def collect(send: case_requests.Send) -> dict[str, Any]:
    """Everything there is to record, by file name."""
    await case_requests.prepare(send)
    return {
        "refusals": {
            "created": {name: await case_requests.creation(send, name) for name in refused.created()},
            "updated": {name: await case_requests.update(send, name) for name in refused.UPDATES},
        },
        "tables": await case_requests.printed(send),
        "completed": {name: await case_requests.completed(send, name) for name in accepted.CASES},
    }


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1], sys.argv[2]))
