"""Jobs on an embedded cluster."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.apis import kinds
from pocketkube.controllers.workloads import job_rules
from tests.pocketkube.cluster import RunningCluster, template

Json = dict[str, Any]


def job(*command: str, restart: str = "Never", **spec: Any) -> Json:
    made = template({}, *command, restartPolicy=restart)
    return {"metadata": {"name": "j"}, "spec": {"template": made, **spec}}


def condition(found: Json, kind: str) -> Json | None:
    return next(
        (each for each in found["status"].get("conditions", []) if each["type"] == kind and each["status"] == "True"),
        None,
    )


async def until(cluster: RunningCluster, kind: str) -> Json:
    return await cluster.until(kinds.JOBS, "j", lambda found: condition(found, kind) is not None)


async def pods(cluster: RunningCluster) -> list[Json]:
    return await cluster.list(kinds.PODS, "batch.kubernetes.io/job-name=j")


async def test_a_job_completes_with_so_many_at_once(cluster: RunningCluster) -> None:
    await cluster.create(kinds.JOBS, job("sh", "-c", "sleep 0.2", completions=4, parallelism=2))
    most = 0

    async def running() -> Json:
        nonlocal most
        found = await pods(cluster)
        most = max(most, sum(p["status"].get("phase") in ("Pending", "Running", None) for p in found))
        return await cluster.get(kinds.JOBS, "j")

    done = await cluster.until_true(running, lambda found: condition(found, "Complete") is not None)
    assert most <= 2
    assert done["status"]["succeeded"] == 4
    assert done["status"]["completionTime"]
    found = await cluster.until_true(
        lambda: pods(cluster), lambda found: not any(p["metadata"].get("finalizers") for p in found)
    )
    assert len(found) == 4


async def test_f08_the_log_of_a_job_can_be_read_after_it_completed(cluster: RunningCluster) -> None:
    await cluster.create(kinds.JOBS, job("sh", "-c", "echo result"))
    await until(cluster, "Complete")
    (only,) = await pods(cluster)
    assert await cluster.logs(only["metadata"]["name"]) == "result\n"


async def test_a_job_fails_after_its_backoff_limit(cluster: RunningCluster) -> None:
    await cluster.create(kinds.JOBS, job("false", backoffLimit=0))
    failed = await until(cluster, "Failed")
    found = condition(failed, "Failed")
    assert found is not None
    assert (found["reason"], failed["status"]["failed"]) == ("BackoffLimitExceeded", 1)
    assert len(await pods(cluster)) == 1


async def test_a_suspended_job_has_no_pods_and_goes_on_when_resumed(cluster: RunningCluster) -> None:
    await cluster.create(kinds.JOBS, job("sh", "-c", "sleep 0.1", suspend=True))
    await until(cluster, "Suspended")
    assert await pods(cluster) == []
    await cluster.patch(kinds.JOBS, "j", {"spec": {"suspend": False}})
    await until(cluster, "Complete")


async def test_suspending_stops_the_pods_of_a_running_job(cluster: RunningCluster) -> None:
    await cluster.create(kinds.JOBS, job("sleep", "1000", parallelism=2, completions=2))
    await cluster.until(kinds.JOBS, "j", lambda found: found["status"].get("ready") == 2)
    await cluster.patch(kinds.JOBS, "j", {"spec": {"suspend": True}})
    await cluster.until_true(lambda: pods(cluster), lambda found: not found)
    stopped = await until(cluster, "Suspended")
    assert not stopped["status"].get("failed")


async def test_every_index_is_done_once(cluster: RunningCluster) -> None:
    body = job("sh", "-c", "echo $JOB_COMPLETION_INDEX", completions=3, parallelism=3, completionMode="Indexed")
    await cluster.create(kinds.JOBS, body)
    done = await until(cluster, "Complete")
    assert done["status"]["completedIndexes"] == "0-2"
    printed = [(await cluster.logs(p["metadata"]["name"])).strip() for p in await pods(cluster)]
    assert sorted(printed) == ["0", "1", "2"]


async def test_a_finished_job_goes_after_its_time(cluster: RunningCluster) -> None:
    await cluster.create(kinds.JOBS, job("true", ttlSecondsAfterFinished=1))
    await until(cluster, "Complete")
    await cluster.until_gone(kinds.JOBS, "j")
    assert await pods(cluster) == []


async def test_a_job_that_takes_too_long_fails(cluster: RunningCluster) -> None:
    await cluster.create(kinds.JOBS, job("sleep", "1000", activeDeadlineSeconds=1))
    failed = await until(cluster, "Failed")
    found = condition(failed, "Failed")
    assert found is not None
    assert found["reason"] == "DeadlineExceeded"


async def test_a_pod_that_is_deleted_is_replaced_and_counted(cluster: RunningCluster) -> None:
    await cluster.create(kinds.JOBS, job("sleep", "1000", podReplacementPolicy="TerminatingOrFailed"))
    (first,) = await cluster.until_true(
        lambda: pods(cluster), lambda found: [p["status"].get("phase") for p in found] == ["Running"]
    )
    await cluster.delete(kinds.PODS, first["metadata"]["name"])
    await cluster.until_true(
        lambda: pods(cluster), lambda found: {p["metadata"]["uid"] for p in found} - {first["metadata"]["uid"]}
    )
    await cluster.until_gone(kinds.PODS, first["metadata"]["name"])


async def test_deleting_a_job_takes_its_pods_along(cluster: RunningCluster) -> None:
    await cluster.create(kinds.JOBS, job("sleep", "1000", parallelism=2, completions=2))
    await cluster.until(kinds.JOBS, "j", lambda found: found["status"].get("ready") == 2)
    await cluster.delete(kinds.JOBS, "j", propagation="Background")
    await cluster.until_true(lambda: pods(cluster), lambda found: not found)


@pytest.mark.parametrize(
    ("failed_ago", "succeeded_ago", "failed", "left"),
    [(None, None, 0, 0.0), (4.0, None, 1, 6.0), (4.0, None, 3, 6.0), (4.0, 1.0, 1, 0.0)],
)
def test_the_next_try_waits_after_a_failure(
    failed_ago: float | None, succeeded_ago: float | None, failed: int, left: float
) -> None:
    def ended(phase: str, ago: float) -> Json:
        at = f"1970-01-01T00:16:{int(40 - ago):02d}Z"
        state = {"terminated": {"finishedAt": at}}
        return {
            "metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "status": {"phase": phase, "containerStatuses": [{"state": state}]},
        }

    mine = [ended("Failed", failed_ago)] if failed_ago is not None else []
    mine += [ended("Succeeded", succeeded_ago)] if succeeded_ago is not None else []
    assert job_rules.backoff_left({"failed": failed}, mine, 1000.0) == left
