"""Pods on a complete kubelet, in virtual time: each golden file is a pod and every state that it reports.

`python -m tests.pocketkube.kubelet.test_recorded_pods` writes the files again; read the difference before you keep it.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from apportion.apis import kinds
from pocketkube.clock import LoopClock, VirtualLoop
from pocketkube.kubelet.settings import KubeletSettings
from tests.pocketkube.cluster import embedded

LIVES = sorted((Path(__file__).parent / "lives").glob("*.yaml"))
SECONDS = 130
STEP = 0.25

Json = dict[str, Any]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return live(tmp_path_factory.mktemp("lives"))


@pytest.mark.parametrize("path", LIVES, ids=lambda path: path.stem)
def test_a_pod_reports_the_recorded_states(path: Path, lived: dict[str, list[str]]) -> None:
    assert lived[path.stem] == yaml.safe_load(path.read_text())["life"]


def live(folder: Path) -> dict[str, list[str]]:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_live(folder))


async def _live(folder: Path) -> dict[str, list[str]]:
    """All pods at once on one node, looked at a few times per second of their time."""
    told: dict[str, list[str]] = {path.stem: [] for path in LIVES}
    async with embedded(folder, clock=LoopClock(), kubelet=KubeletSettings()) as cluster:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for path in LIVES:
            pod = yaml.safe_load(path.read_text())["pod"]
            meta = {"name": path.stem, **pod.get("metadata", {})}
            spec = {"terminationGracePeriodSeconds": 1, "nodeName": "node-1", **pod["spec"]}
            await cluster.create(kinds.PODS, {"metadata": meta, "spec": spec})
        while loop.time() - began < SECONDS:
            for pod in await cluster.list(kinds.PODS):
                _note(told[pod["metadata"]["name"]], int(loop.time() - began), state(pod["status"]))
            await asyncio.sleep(STEP)
    return told


def _note(life: list[str], second: int, seen: str) -> None:
    """Add what is new; of what passes within a second only the end is kept."""
    if life and life[-1].partition("s ")[2] == seen:
        return
    if life and life[-1].startswith(f"{second}s "):
        life.pop()
    life.append(f"{second}s {seen}")


def state(status: Json) -> str:
    """One line: phase and reason, then each container."""
    parts = [" ".join(filter(None, (status["phase"], status.get("reason"), _steady(status.get("message", "")))))]
    for field in ("initContainerStatuses", "containerStatuses"):
        parts += [_container(each) for each in status.get(field) or ()]
    return " | ".join(parts)


def _container(each: Json) -> str:
    ((kind, about),) = each["state"].items()
    parts = [
        f"{each['name']}: {kind}",
        "ready" if each["ready"] else "",
        about.get("reason", ""),
        str(about["exitCode"]) if "exitCode" in about else "",
        f"x{each['restartCount']}" if each["restartCount"] else "",
        _steady(about.get("message", "")),
    ]
    return " ".join(filter(None, parts))


def _steady(message: str) -> str:
    return re.sub(r"\([0-9a-f-]{36}\)", "(UID)", message)


if __name__ == "__main__":
    found = live(Path(tempfile.mkdtemp()))
    for written in LIVES:
        text = written.read_text().partition("life:")[0]
        lines = "".join(f"  - {yaml.safe_dump(line, width=1000).splitlines()[0]}\n" for line in found[written.stem])
        written.write_text(f"{text}life:\n{lines}")
