"""Claims and their volumes; jobs by the clock."""

from __future__ import annotations

from typing import Any

from apportion.apis import kinds
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
