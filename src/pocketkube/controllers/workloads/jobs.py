"""Jobs: pods until enough of them succeeded, or too many failed.

Every pod carries a finalizer until its end is counted, so a pod that is deleted as it ends is not lost. Its end is
written into the status first, then the finalizer goes; what was counted is remembered by uid, so that a finalizer
that could not be removed at once does not count twice.
"""

from __future__ import annotations

from typing import Any

from apportion.apis.kinds import JOBS, PODS
from apportion.cluster import errors
from apportion.cluster.client import PatchType
from pocketkube.clock import seconds_of, stamp
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import Control, Json, Key, Reconciler, deleting
from pocketkube.controllers.workloads import job_rules, pod_templates
from pocketkube.controllers.workloads.expectations import Expectations
from pocketkube.controllers.workloads.pod_sets import PodSet
from pocketkube.informers import BY_OWNER

FINALIZER = "batch.kubernetes.io/job-tracking"


class Jobs(Reconciler):
    name = "jobs"
    component = "job-controller"

    def __init__(self, control: Control) -> None:
        super().__init__(control)
        self._pods = PodSet(control, JOBS, self.recorder)
        self._writes = Expectations(control.clock)
        self._counted: set[str] = set()

    def subscribe(self) -> None:
        self.follow(JOBS)
        self.follow_owned(PODS, "Job")

    async def reconcile(self, key: Key) -> float | None:
        job = self.informers.of(JOBS).get(key[1], key[0])
        if job is None:
            await self._release_orphans(key)
            return None
        waiting = self._pods.expectations.wait(key) or self._writes.wait(key)
        if waiting is not None:
            return waiting
        if job["spec"].get("managedBy") not in (None, "kubernetes.io/job-controller"):
            return None
        if job_rules.finished(job) is not None:
            return await self._after_the_end(key, job)
        if deleting(job):
            await self._release(self._owned(job))
            return None
        return await self._advance(key, job)

    async def _advance(self, key: Key, job: Json) -> float | None:
        mine = self._owned(job)
        fresh = [pod for pod in mine if self._counts(job, pod)]
        status = job_rules.counted(job, fresh)
        now = self.clock.now()
        self._say_suspension(job, status, now)
        if not job_rules.suspended(job) and not status["startTime"]:
            status["startTime"] = stamp(now)
        ended = job_rules.end(job, status, mine, now)
        active = [pod for pod in mine if pod_facts.active(pod)]
        if ended is not None or job_rules.suspended(job):
            await self._pods.delete(key, job, active)
            active = []
        again = None
        if ended is None and not job_rules.suspended(job):
            active, again = await self._scale(key, job, status, active, mine)
        await self._write(key, job, status, active, ended, mine)
        self._counted |= {_uid(pod) for pod in fresh}
        over = ended is not None or job_rules.suspended(job)
        await self._release([pod for pod in mine if pod_facts.terminal(pod) or (over and deleting(pod))])
        return again if again is not None else job_rules.next_look(job, status, now)

    async def _scale(
        self, key: Key, job: Json, status: Json, active: list[Json], mine: list[Json]
    ) -> tuple[list[Json], float | None]:
        """More pods, unless the last failure is too fresh; fewer if parallelism went down."""
        wanted = job_rules.wanted_active(job, status, active)
        if len(active) > wanted:
            surplus = sorted(active, key=lambda pod: (pod_facts.ready(pod), -pod_facts.created(pod)))[
                : len(active) - wanted
            ]
            await self._pods.delete(key, job, surplus)
            gone = {_uid(pod) for pod in surplus}
            return [pod for pod in active if _uid(pod) not in gone], None
        missing = wanted - len(active)
        leaving = sum(1 for pod in mine if deleting(pod) and not pod_facts.terminal(pod))
        missing -= leaving if job["spec"].get("podReplacementPolicy") == "Failed" else 0
        if missing <= 0:
            return active, None
        wait = job_rules.backoff_left(status, mine, self.clock.now())
        if wait > 0:
            return active, wait
        indexes = job_rules.free_indexes(job, status, active, missing)
        await self._pods.create(key, job, (_pod(job, index) for index in indexes))
        return active, None

    async def _write(
        self, key: Key, job: Json, status: Json, active: list[Json], ended: job_rules.JobEnd | None, mine: list[Json]
    ) -> None:
        before = job.get("status") or {}
        status["active"] = len(active) or None
        status["ready"] = sum(pod_facts.ready(pod) for pod in active)
        status["terminating"] = sum(1 for pod in mine if deleting(pod) and not pod_facts.terminal(pod))
        status["uncountedTerminatedPods"] = {}
        conditions = job_rules.conditions(job, before.get("conditions") or [], ended, stamp(self.clock.now()))
        status["conditions"] = conditions or None
        if ended is not None and ended.kind == "Complete":
            status["completionTime"] = stamp(self.clock.now())
        if any(before.get(name) != value for name, value in status.items() if value or before.get(name)):
            await self._patch(key, job, status)
        if ended is not None:
            self.say(JOBS, job, ended.event, ended.message, warning=ended.kind == "Failed")

    async def _patch(self, key: Key, job: Json, status: Json) -> None:
        meta = job["metadata"]
        patch = {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}, "status": status}
        written = await self.client.patch(JOBS, meta["name"], patch, namespace=meta["namespace"], subresource="status")
        self._writes.written(key, self.informers.of(JOBS), written)

    async def _release(self, done: list[Json]) -> None:
        """Let counted pods go."""
        for pod in done:
            meta = pod["metadata"]
            if not _tracked(pod):
                self._counted.discard(_uid(pod))
                continue
            patch: Json = {"metadata": {"uid": meta["uid"], "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
            try:
                written = await self.client.patch(
                    PODS, meta["name"], patch, namespace=meta["namespace"], how=PatchType.strategic
                )
            except (errors.NotFound, errors.Conflict):
                continue
            reference = next(each for each in meta["ownerReferences"] if each.get("controller"))
            self._writes.written((meta["namespace"], reference["name"]), self.informers.of(PODS), written)

    async def _release_orphans(self, key: Key) -> None:
        """The job is gone: its pods must not be held back by it."""
        left = [
            pod
            for pod in self.informers.of(PODS).indexed("namespace", key[0])
            if _tracked(pod)
            and any(each["kind"] == "Job" and each["name"] == key[1] for each in pod["metadata"]["ownerReferences"])
        ]
        await self._release(left)

    async def _after_the_end(self, key: Key, job: Json) -> float | None:
        mine = self._owned(job)
        await self._pods.delete(key, job, [pod for pod in mine if pod_facts.active(pod)])
        await self._release(mine)
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or deleting(job):
            return None
        condition = job_rules.finished(job)
        assert condition is not None
        left = seconds_of(condition["lastTransitionTime"]) + float(ttl) - self.clock.now()
        if left > 0:
            return left
        meta = job["metadata"]
        await self.client.delete(
            JOBS, meta["name"], namespace=meta["namespace"], uid=meta["uid"], propagation="Foreground"
        )
        return None

    def _say_suspension(self, job: Json, status: Json, now: float) -> None:
        """A job that goes on counts its time anew."""
        was = any(
            each["type"] == "Suspended" and each["status"] == "True"
            for each in (job.get("status") or {}).get("conditions") or ()
        )
        if job_rules.suspended(job) and not was:
            self.say(JOBS, job, "Suspended", "Job suspended")
        elif was and not job_rules.suspended(job):
            status["startTime"] = stamp(now)
            self.say(JOBS, job, "Resumed", "Job resumed")

    def _counts(self, job: Json, pod: Json) -> bool:
        """Whether a pod's end is new. One that was stopped because its job was suspended is nobody's failure."""
        if not pod_facts.terminal(pod) or not _tracked(pod) or _uid(pod) in self._counted:
            return False
        return not (job_rules.suspended(job) and deleting(pod) and pod_facts.phase(pod) == "Failed")

    def _owned(self, job: Json) -> list[Json]:
        return self.informers.of(PODS).indexed(BY_OWNER, job["metadata"]["uid"])


def _tracked(pod: Json) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def _uid(pod: Json) -> str:
    return str(pod["metadata"]["uid"])


def _pod(job: Json, index: int | None) -> Json:
    name = job["metadata"]["name"]
    labels = {}
    if index is not None:
        labels[job_rules.INDEX] = str(index)
    template: Json = job["spec"]["template"]
    pod = pod_templates.pod_from(template, JOBS, job, labels=labels)
    pod["metadata"].setdefault("finalizers", []).append(FINALIZER)
    if index is not None:
        pod["metadata"]["generateName"] = f"{name}-{index}-"
        pod["metadata"].setdefault("annotations", {})[job_rules.INDEX] = str(index)
        pod["spec"]["hostname"] = f"{name}-{index}"
        reference: dict[str, Any] = {"fieldRef": {"fieldPath": f"metadata.labels['{job_rules.INDEX}']"}}
        for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
            env = container.setdefault("env", [])
            if not any(each["name"] == "JOB_COMPLETION_INDEX" for each in env):
                env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": reference})
    return pod
