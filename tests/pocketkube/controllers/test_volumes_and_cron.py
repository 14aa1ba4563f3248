"""Claims and their volumes; jobs by the clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apportion.apis import kinds
from pocketkube.clock import stamp
from pocketkube.controllers.workloads import cron_expressions
from tests.pocketkube.cluster import RunningCluster, pod, template

Json = dict[str, Any]


def claim(size: str = "1Gi", **spec: Any) -> Json:
    body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"metadata": {"name": "c"}, "spec": body}


def bound(found: Json) -> bool:
    return (found.get("status") or {}).get("phase") == "Bound"


async def test_a_claim_gets_a_volume_made_for_it_which_goes_with_it(cluster: RunningCluster) -> None:
    await cluster.create(kinds.PERSISTENT_VOLUME_CLAIMS, claim())
    found = await cluster.until(kinds.PERSISTENT_VOLUME_CLAIMS, "c", bound)
    name = found["spec"]["volumeName"]
    assert found["status"]["capacity"] == {"storage": "1Gi"}
    assert bound(await cluster.get(kinds.PERSISTENT_VOLUMES, name))
    await cluster.delete(kinds.PERSISTENT_VOLUME_CLAIMS, "c")
    await cluster.until_gone(kinds.PERSISTENT_VOLUMES, name)


async def test_a_claim_takes_the_smallest_volume_that_fits(cluster: RunningCluster) -> None:
    for name, size in {"small": "1Gi", "right": "5Gi", "huge": "100Gi"}.items():
        body = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
            "storageClassName": "manual",
        }
        await cluster.create(kinds.PERSISTENT_VOLUMES, {"metadata": {"name": name}, "spec": body})
    await cluster.create(kinds.PERSISTENT_VOLUME_CLAIMS, claim("3Gi", storageClassName="manual"))
    found = await cluster.until(kinds.PERSISTENT_VOLUME_CLAIMS, "c", bound)
    assert found["spec"]["volumeName"] == "right"


async def test_a_class_that_waits_binds_with_the_first_pod(cluster: RunningCluster) -> None:
    storage = {"metadata": {"name": "late"}, "provisioner": "x/y", "volumeBindingMode": "WaitForFirstConsumer"}
    await cluster.create(kinds.STORAGE_CLASSES, storage)
    await cluster.create(kinds.PERSISTENT_VOLUME_CLAIMS, claim(storageClassName="late"))
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    assert not bound(await cluster.get(kinds.PERSISTENT_VOLUME_CLAIMS, "c"))
    await cluster.create(kinds.PODS, pod("p", "sleep", "1000", volumes=[volume]))
    await cluster.until(kinds.PERSISTENT_VOLUME_CLAIMS, "c", bound)
    await cluster.until_phase("p", "Running")


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z"),
        ("*/15 * * * *", "2026-01-01T00:46:00Z", "2026-01-01T01:00:00Z"),
        ("30 4 1,15 * 5", "2026-01-01T05:00:00Z", "2026-01-02T04:30:00Z"),
        ("0 0 * feb mon", "2026-01-15T00:00:00Z", "2026-02-02T00:00:00Z"),
        ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
        ("0 9-17/4 * * 1-5", "2026-01-02T14:00:00Z", "2026-01-02T17:00:00Z"),
        ("0 0 * * 7", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
    ],
)
def test_schedules(schedule: str, after: str, expected: str) -> None:
    moment = datetime.fromisoformat(after).astimezone(UTC).timestamp()
    found = cron_expressions.parse(schedule).next_after(moment)
    assert found is not None
    assert stamp(found) == expected


def test_a_day_that_never_comes() -> None:
    assert cron_expressions.parse("0 0 31 2 *").next_after(0.0) is None


@pytest.mark.parametrize("schedule", ["", "* * * *", "60 * * * *", "a * * * *", "*/0 * * * *", "5-1 * * * *"])
def test_what_is_no_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(cron_expressions.CronError):
        cron_expressions.parse(schedule)


async def test_a_cron_job_starts_what_is_due_once(cluster: RunningCluster) -> None:
    spec = {
        "schedule": "0 0 1 * *",
        "jobTemplate": {"spec": {"template": template({}, "true", restartPolicy="Never")}},
    }
    made = await cluster.create(kinds.CRON_JOBS, {"metadata": {"name": "tick"}, "spec": spec})
    assert await cluster.list(kinds.JOBS) == []
    missed = {"status": {"lastScheduleTime": "2024-01-01T00:00:00Z"}}
    await cluster.client.patch(kinds.CRON_JOBS, "tick", missed, namespace="default", subresource="status")
    jobs = await cluster.until_true(lambda: cluster.list(kinds.JOBS), lambda found: len(found) == 1)
    assert jobs[0]["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    await cluster.until(kinds.CRON_JOBS, "tick", lambda c: bool(c["status"].get("lastSuccessfulTime")))
    assert len(await cluster.list(kinds.JOBS)) == 1
