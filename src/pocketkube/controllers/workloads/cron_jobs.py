"""CronJobs: Jobs by the clock."""

from __future__ import annotations

import copy
import zoneinfo

from apportion.apis.kinds import CRON_JOBS, JOBS
from apportion.cluster import errors
from pocketkube import cron_expressions
from pocketkube.clock import seconds_of, stamp
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, deleting
from pocketkube.controllers.workloads import job_rules, pod_templates
from pocketkube.controllers.workloads.expectations import Expectations
from pocketkube.cron_expressions import Interval
from pocketkube.informers import BY_OWNER

Schedule = cron_expressions.Schedule | Interval

_WINDOWS = (3600.0, 86_400.0, 32 * 86_400.0, 366 * 86_400.0, 5 * 366 * 86_400.0)  # few steps in each, however old
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


class CronJobs(Reconciler):
    name = "cronjobs"
    component = "cronjob-controller"

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self._expectations = Expectations(control.clock)

    def subscribe(self) -> None:
        self.follow(CRON_JOBS)
        self.follow_owned(JOBS, "CronJob")

    async def reconcile(self, key: Key) -> float | None:
        owner = self.informers.of(CRON_JOBS).get(key[1], key[0])
        if owner is None or deleting(owner):
            return None
        waiting = self._expectations.wait(key)
        if waiting is not None:
            return waiting
        mine = self.informers.of(JOBS).indexed(BY_OWNER, owner["metadata"]["uid"])
        active = [job for job in mine if job_rules.finished(job) is None and not deleting(job)]
        for job in (job for job in active if not _by_the_clock(job)):
            text = f"Saw a job that the controller did not create or forgot: {_name(job)}"
            self.say(CRON_JOBS, owner, "UnexpectedJob", text, warning=True)
        active = [job for job in active if _by_the_clock(job)]
        status: Json = {"active": [_reference(job) for job in sorted(active, key=_name)] or None}
        done = [job for job in mine if (job_rules.finished(job) or {}).get("type") == "Complete"]
        if done:
            status["lastSuccessfulTime"] = max(job["status"]["completionTime"] for job in done)
        again = await self._start_due(key, owner, active, status)
        await self._forget_history(key, owner, mine)
        await self.set_status(CRON_JOBS, owner, status)
        return again

    async def _start_due(self, key: Key, owner: Json, active: list[Json], status: Json) -> float | None:
        spec, now = owner["spec"], self.clock.now()
        if spec.get("suspend"):
            return None
        schedule = self._schedule(owner)
        if schedule is None:
            return None
        before = (owner.get("status") or {}).get("lastScheduleTime") or owner["metadata"]["creationTimestamp"]
        since = seconds_of(before)
        due = _latest_due(schedule, since, now, spec.get("startingDeadlineSeconds"))
        following = _next(schedule, since, now)
        again = None if following is None else max(0.1, following - now)
        if due is None:
            return again
        policy = spec.get("concurrencyPolicy", "Allow")
        if policy == "Forbid" and active:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.say(CRON_JOBS, owner, "JobAlreadyActive", text)
            return again
        if policy == "Replace":
            for job in active:
                await self._delete(key, owner, job)
        await self._create(key, owner, due)
        status["lastScheduleTime"] = stamp(due)
        return again

    def _schedule(self, owner: Json) -> Schedule | None:
        """In its time zone, by default UTC. A schedule or a zone that cannot be used is told in an event."""
        spec = owner["spec"]
        name = spec.get("timeZone") or "UTC"
        try:
            return cron_expressions.parse(spec["schedule"], zoneinfo.ZoneInfo(name))
        except cron_expressions.CronError as error:
            text = f"unparseable schedule: {spec['schedule']!r} : {error}"
            self.say(CRON_JOBS, owner, "UnparseableSchedule", text, warning=True)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            text = f"invalid timeZone: {name!r}: unknown time zone {name}"
            self.say(CRON_JOBS, owner, "UnknownTimeZone", text, warning=True)
        return None

    async def _create(self, key: Key, owner: Json, due: float) -> None:
        """One job per moment: its name says which."""
        template = owner["spec"]["jobTemplate"]
        meta = copy.deepcopy(template.get("metadata") or {})
        meta["name"] = f"{owner['metadata']['name']}-{int(due) // 60}"
        meta["namespace"] = owner["metadata"]["namespace"]
        meta["ownerReferences"] = [pod_templates.owner_reference(CRON_JOBS, owner)]
        meta.setdefault("annotations", {})[SCHEDULED] = stamp(due)
        try:
            made = await self.client.create(JOBS, {"metadata": meta, "spec": copy.deepcopy(template["spec"])})
        except errors.AlreadyExists:
            return
        self._expectations.created(key, self.informers.of(JOBS), made)
        self.say(CRON_JOBS, owner, "SuccessfulCreate", f"Created job {meta['name']}")

    async def _forget_history(self, key: Key, owner: Json, mine: list[Json]) -> None:
        for kind, field, default in (
            ("Complete", "successfulJobsHistoryLimit", 3),
            ("Failed", "failedJobsHistoryLimit", 1),
        ):
            done = [job for job in mine if (job_rules.finished(job) or {}).get("type") == kind and not deleting(job)]
            done.sort(key=lambda job: job["metadata"]["creationTimestamp"])
            limit = owner["spec"].get(field, default)
            for job in done[: max(0, len(done) - limit)]:
                await self._delete(key, owner, job)

    async def _delete(self, key: Key, owner: Json, job: Json) -> None:
        meta = job["metadata"]
        try:
            await self.client.delete(JOBS, meta["name"], namespace=meta["namespace"], propagation="Background")
        except errors.NotFound:
            return
        self._expectations.removed(key, self.informers.of(JOBS), job)
        self.say(CRON_JOBS, owner, "SuccessfulDelete", f"Deleted job {meta['name']}")


def _next(schedule: Schedule, since: float, now: float) -> float | None:
    """When to look again."""
    if isinstance(schedule, Interval):
        return since + (max(0.0, (now - since) // schedule.seconds) + 1) * schedule.seconds
    return schedule.next_after(now)


def _latest_due(schedule: Schedule, since: float, now: float, deadline: float | None) -> float | None:
    """The newest moment since the last one that was missed by no more than the deadline."""
    if deadline is not None:
        since = max(since, now - deadline)
    if isinstance(schedule, Interval):
        missed = (now - since) // schedule.seconds
        return since + missed * schedule.seconds if missed >= 1 else None
    for window in _WINDOWS:
        latest: float | None = None
        at = schedule.next_after(max(since, now - window))
        while at is not None and at <= now:
            latest, at = at, schedule.next_after(at)
        if latest is not None:
            return latest
    return None


def _by_the_clock(job: Json) -> bool:
    return SCHEDULED in (job["metadata"].get("annotations") or {})


def _name(job: Json) -> str:
    return str(job["metadata"]["name"])


def _reference(job: Json) -> Json:
    meta = job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": meta["uid"],
        "resourceVersion": meta["resourceVersion"],
    }
