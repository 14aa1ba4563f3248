"""When a Job needs more pods and when it is over: pure, from its spec, its counts and its pods."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pocketkube.clock import seconds_of
from pocketkube.controllers import pod_facts
from pocketkube.controllers.controller import set_condition

Json = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
MOST_INDEXES = 100_000  # of completed pods that are known, as validation bounds the parallelism of such jobs
_FIRST_BACKOFF, _LONGEST_BACKOFF = 10.0, 600.0


@dataclass(frozen=True)
class JobEnd:
    """How a job ends."""

    kind: str  # Complete or Failed
    reason: str
    message: str
    event: str


def suspended(job: Json) -> bool:
    return bool(job["spec"].get("suspend"))


def finished(job: Json) -> Json | None:
    """The condition that ended it."""
    for each in (job.get("status") or {}).get("conditions") or ():
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            return dict(each)
    return None


def counted(job: Json, fresh: list[Json]) -> Json:
    """The status with the ends of these pods added."""
    before = job.get("status") or {}
    status: Json = {
        "succeeded": before.get("succeeded", 0),
        "failed": before.get("failed", 0),
        "startTime": before.get("startTime"),
    }
    indexes = _indexes(before.get("completedIndexes", ""))
    for pod in fresh:
        succeeded = pod_facts.phase(pod) == "Succeeded"
        index = _index_of(pod)
        if succeeded and _indexed(job) and index is not None:
            indexes.add(index)
        elif succeeded:
            status["succeeded"] += 1
        else:
            status["failed"] += 1
    if _indexed(job):
        status["completedIndexes"] = _spelled(indexes) or None
        status["succeeded"] = len(indexes)
    status["succeeded"] = status["succeeded"] or None
    status["failed"] = status["failed"] or None
    return status


def end(job: Json, status: Json, mine: list[Json], now: float) -> JobEnd | None:
    spec = job["spec"]
    failed = status["failed"] or 0
    limit = spec.get("backoffLimit", 6)
    restarts = sum(_all_restarts(pod) for pod in mine if pod_facts.active(pod) and _restarts_itself(job))
    if failed > limit or (restarts and restarts > limit):
        text = "Job has reached the specified backoff limit"
        return JobEnd("Failed", "BackoffLimitExceeded", text, "BackoffLimitExceeded")
    deadline = spec.get("activeDeadlineSeconds")
    started = status.get("startTime")
    if deadline is not None and started and not suspended(job) and seconds_of(started) + deadline <= now:
        text = "Job was active longer than specified deadline"
        return JobEnd("Failed", "DeadlineExceeded", text, "DeadlineExceeded")
    if _complete(job, status, mine):
        return JobEnd("Complete", "CompletionsReached", "Job completed", "Completed")
    return None


def wanted_active(job: Json, status: Json, active: list[Json]) -> int:
    spec = job["spec"]
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    succeeded = status["succeeded"] or 0
    if completions is None:  # a work queue: once one has succeeded, no more are started
        return min(parallelism, len(active)) if succeeded else parallelism
    return min(parallelism, max(0, int(completions) - succeeded))


def free_indexes(job: Json, status: Json, active: list[Json], count: int) -> Iterator[int | None]:
    """One per pod to create: they may be a thousand million."""
    if not _indexed(job):
        return itertools.repeat(None, count)
    taken = _indexes(status.get("completedIndexes") or "") | {_index_of(pod) for pod in active}
    free = (index for index in range(job["spec"]["completions"]) if index not in taken)
    return itertools.islice(free, count)


def backoff_left(status: Json, mine: list[Json], now: float) -> float:
    """Seconds until the next try after failures in a row."""
    failed = [pod for pod in mine if pod_facts.phase(pod) == "Failed"]
    if not failed:
        return 0.0
    last: float = max(_ended_at(pod) for pod in failed)
    succeeded = [_ended_at(pod) for pod in mine if pod_facts.phase(pod) == "Succeeded"]
    if succeeded and max(succeeded) >= last:
        return 0.0
    in_a_row = max(1, min(len(failed), status["failed"] or 1))
    return max(0.0, last + min(_FIRST_BACKOFF * 2.0 ** (in_a_row - 1), _LONGEST_BACKOFF) - now)


def next_look(job: Json, status: Json, now: float) -> float | None:
    deadline, started = job["spec"].get("activeDeadlineSeconds"), status.get("startTime")
    if deadline is None or not started or suspended(job):
        return None
    return max(0.1, seconds_of(started) + float(deadline) - now)


def conditions(job: Json, before: list[Json], ended: JobEnd | None, now: str) -> list[Json]:
    made = before
    was = next((each for each in before if each["type"] == "Suspended"), None)
    if suspended(job):
        made = (
            set_condition(made, "Suspended", "True", "JobSuspended", "Job suspended", now, lastProbeTime=now)
            if (was is None or was["status"] != "True")
            else made
        )
    elif was is not None and was["status"] == "True":
        made = set_condition(made, "Suspended", "False", "JobResumed", "Job resumed", now, lastProbeTime=now)
    if ended is None:
        return made
    first = ("SuccessCriteriaMet" if ended.kind == "Complete" else "FailureTarget", ended.kind)
    for kind in first:
        text = "Reached expected number of succeeded pods" if ended.kind == "Complete" else ended.message
        made = set_condition(made, kind, "True", ended.reason, text, now, lastProbeTime=now)
    return made


def _complete(job: Json, status: Json, mine: list[Json]) -> bool:
    completions = job["spec"].get("completions")
    succeeded = int(status["succeeded"] or 0)
    if completions is None:
        return succeeded > 0 and not any(pod_facts.active(pod) for pod in mine)
    return succeeded >= int(completions)


def _indexed(job: Json) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def _restarts_itself(job: Json) -> bool:
    return bool(job["spec"]["template"]["spec"].get("restartPolicy") == "OnFailure")


def _all_restarts(pod: Json) -> int:
    status = pod.get("status") or {}
    return sum(
        each.get("restartCount", 0)
        for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    )


def _index_of(pod: Json) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdigit() else None


def _ended_at(pod: Json) -> float:
    ends = [
        (each.get("state") or {}).get("terminated", {}).get("finishedAt")
        for each in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    return max((seconds_of(end) for end in ends if end), default=pod_facts.created(pod))


def _indexes(text: str) -> set[int]:
    """`0,2-4` as numbers."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(itertools.islice(range(int(first), int(last or first) + 1), MOST_INDEXES))
        if len(found) > MOST_INDEXES:  # not written by this controller
            break
    return found


def _spelled(indexes: set[int]) -> str:
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
