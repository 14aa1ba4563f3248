"""Requests that changed something on the API server, from its own counters, and the CPU time of a process."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

from apportion.cluster.client import Client

CHANGES = {"POST", "PUT", "PATCH", "APPLY", "DELETE"}
_REQUESTS = re.compile(
    r'^apiserver_request_total\{.*dry_run="".*resource="(\w*)".*subresource="(\w*)".*verb="(\w+)".*\} (\S+)$'
)


async def writes(client: Client) -> Counter[str]:
    """By verb and resource, from the start of the server: `PATCH pods/status`."""
    text = (await client.raw("GET", "/metrics", accept="text/plain")).decode()
    counted: Counter[str] = Counter()
    for line in text.splitlines():
        found = _REQUESTS.match(line)
        if found and found[3] in CHANGES:
            counted[f"{found[3]} {found[1]}/{found[2]}".rstrip("/")] += int(float(found[4]))
    return counted


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
