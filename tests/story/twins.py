"""Two identical pods at the same moment, again and again: neither ever gets or loses the other's slice. Rule S07."""

from __future__ import annotations

from typing import Any

from tests.environments.waiting import until
from tests.story.workloads import Workloads


def play(work: Workloads, rounds: int) -> None:
    for number in range(rounds):
        name = f"twins-{number}"
        work.create("StatefulSet", name, replicas=2)
        pods = work.wait_running(2)
        work.assert_each_sees_its_own(pods)
        kept = next(pod["metadata"]["uid"] for pod in pods if pod["metadata"]["name"].endswith("-0"))
        before = _claims(work, kept)
        work.scale("StatefulSet", name, 1)
        until(lambda: len(work.cluster.claims()) == 1, "the other's claim goes", within=60)
        assert _claims(work, kept) == before
        assert before[0]["status"]["migUUID"] in work.cluster.left_on_nodes()
        work.delete("StatefulSet", name)
        until(lambda: not work.pods(), "both are gone", within=60)
    work.wait_nothing_left()


def _claims(work: Workloads, uid: str) -> list[dict[str, Any]]:
    found = [claim for claim in work.cluster.claims() if claim["spec"]["podRef"]["uid"] == uid]
    return [{key: claim[key] for key in ("spec", "status")} for claim in found]
