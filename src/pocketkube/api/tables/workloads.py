"""Tables of workloads: deployments, jobs and what scales and guards them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pocketkube.api.tables import cells, durations
from pocketkube.api.tables.cells import Obj, Row

# `+` marks columns of `-o wide`; a type other than string stands behind a colon.
COLUMNS: dict[str, str] = {
    "apps_v1.DaemonSet": (
        "Name,Desired:integer,Current:integer,Ready:integer,Up-to-date:integer,Available:integer,Node Selector,Age,"
        "Containers+,Images+,Selector+"
    ),
    "apps_v1.Deployment": "Name,Ready,Up-to-date,Available,Age,Containers+,Images+,Selector+",
    "apps_v1.ReplicaSet": "Name,Desired:integer,Current:integer,Ready:integer,Age,Containers+,Images+,Selector+",
    "apps_v1.StatefulSet": "Name,Ready,Age,Containers+,Images+",
    "apps_v1.ControllerRevision": "Name,Controller,Revision,Age",
    "batch_v1.CronJob": (
        "Name,Schedule,Timezone,Suspend:boolean,Active:integer,Last Schedule,Age,Containers+,Images+,Selector+"
    ),
    "batch_v1.Job": "Name,Status,Completions,Duration,Age,Containers+,Images+,Selector+",
    "core_v1.PodTemplate": "Name,Containers,Images,Pod Labels",
    "core_v1.ReplicationController": (
        "Name,Desired:integer,Current:integer,Ready:integer,Age,Containers+,Images+,Selector+"
    ),
    "autoscaling_v2.HorizontalPodAutoscaler": "Name,Reference,Targets,MinPods,MaxPods,Replicas,Age",
    "policy_v1.PodDisruptionBudget": "Name,Min Available,Max Unavailable,Allowed Disruptions:integer,Age",
}


def _deployment(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    selector = cells.selector_text(spec.get("selector"))
    shown = "" if selector == cells.NONE else selector
    return [cells.name(obj), ready, *counts, cells.age(obj, now), *cells.containers(spec.get("template")), shown]


def _replica_set(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    selector = cells.selector_text(spec.get("selector"))
    return [cells.name(obj), *counts, cells.age(obj, now), *cells.containers(spec.get("template")), selector]


def _replication_controller(obj: Obj, now: datetime) -> list[Any]:
    row = _replica_set({**obj, "spec": {**cells.part(obj, "spec"), "selector": None}}, now)
    return [*row[:-1], cells.labels_text(cells.part(obj, "spec").get("selector"))]


def _daemon_set(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    nodes = cells.labels_text(((spec.get("template") or {}).get("spec") or {}).get("nodeSelector"))
    counts = [status.get(field, 0) for field in fields]
    selector = cells.selector_text(spec.get("selector"))
    return [cells.name(obj), *counts, nodes, cells.age(obj, now), *cells.containers(spec.get("template")), selector]


def _stateful_set(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [cells.name(obj), ready, cells.age(obj, now), *cells.containers(spec.get("template"))]


def _job(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    succeeded, parallelism = status.get("succeeded", 0), spec.get("parallelism") or 0
    if "completions" in spec:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        completions = f"{succeeded}/1" + (f" of {parallelism}" if parallelism > 1 else "")
    started = durations.parse(status.get("startTime"))
    ended = durations.parse(status.get("completionTime")) or now
    duration = durations.human(ended - started) if started else ""
    selector = cells.selector_text(spec.get("selector"))
    state = _job_state(obj, status)
    return [
        cells.name(obj),
        state,
        completions,
        duration,
        cells.age(obj, now),
        *cells.containers(spec.get("template")),
        selector,
    ]


def _job_state(obj: Obj, status: Obj) -> str:
    true = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    for condition in ("Complete", "Failed"):
        if condition in true:
            return condition
    if cells.part(obj, "metadata").get("deletionTimestamp"):
        return "Terminating"
    return next((each for each in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if each in true), "Running")


def _cron_job(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    last = durations.age(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else cells.NONE
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    suspended = "True" if spec.get("suspend") else "False"
    head = [cells.name(obj), spec.get("schedule", ""), spec.get("timeZone") or cells.NONE, suspended]
    tail = [*cells.containers(job.get("template")), cells.selector_text(job.get("selector"))]
    return [*head, len(status.get("active") or ()), last, cells.age(obj, now), *tail]


def _pod_template(obj: Obj, now: datetime) -> list[Any]:
    del now
    template = cells.part(obj, "template")
    return [
        cells.name(obj),
        *cells.containers(template),
        cells.labels_text(cells.part(template, "metadata").get("labels")),
    ]


def _controller_revision(obj: Obj, now: datetime) -> list[Any]:
    owners = [each for each in cells.part(obj, "metadata").get("ownerReferences") or () if each.get("controller")]
    owner = cells.NONE
    if owners:
        group = owners[0].get("apiVersion", "").rpartition("/")[0]
        kind = owners[0].get("kind", "").lower()
        owner = f"{kind}{'.' if group else ''}{group}/{owners[0].get('name')}"
    return [cells.name(obj), owner, obj.get("revision", 0), cells.age(obj, now)]


def _disruption_budget(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    limits = [str(spec.get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    return [cells.name(obj), *limits, status.get("disruptionsAllowed", 0), cells.age(obj, now)]


def _autoscaler(obj: Obj, now: datetime) -> list[Any]:
    spec, status = cells.part(obj, "spec"), cells.part(obj, "status")
    target = cells.part(spec, "scaleTargetRef")
    return [
        cells.name(obj),
        f"{target.get('kind')}/{target.get('name')}",
        _metrics(spec.get("metrics") or [], status.get("currentMetrics") or []),
        str(spec.get("minReplicas", cells.UNSET)),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        cells.age(obj, now),
    ]


def _metrics(wanted: list[Obj], current: list[Obj]) -> str:
    shown = 2
    texts = [_metric(each, current[index] if index < len(current) else {}) for index, each in enumerate(wanted)]
    more = f" + {len(texts) - shown} more..." if len(texts) > shown else ""
    return (", ".join(texts[:shown]) + more) or cells.NONE


def _metric(wanted: Obj, current: Obj) -> str:
    kind = wanted.get("type", "")
    source = kind[:1].lower() + kind[1:]
    target, now = cells.part(cells.part(wanted, source), "target"), cells.part(cells.part(current, source), "current")
    name = f"{wanted[source].get('name')}: " if kind in ("Resource", "ContainerResource") and source in wanted else ""
    if "averageUtilization" in target:
        used = f"{now['averageUtilization']}%" if "averageUtilization" in now else cells.UNKNOWN
        return f"{name}{used}/{target['averageUtilization']}%"
    if "averageValue" in target:
        average = " (avg)" if kind in ("External", "Object") else ""
        return f"{name}{now.get('averageValue', cells.UNKNOWN)}/{target['averageValue']}{average}"
    return f"{name}{now.get('value', cells.UNKNOWN)}/{target.get('value', '<auto>')}"


ROWS: dict[str, Row] = {
    "apps_v1.DaemonSet": _daemon_set,
    "apps_v1.Deployment": _deployment,
    "apps_v1.ReplicaSet": _replica_set,
    "apps_v1.StatefulSet": _stateful_set,
    "apps_v1.ControllerRevision": _controller_revision,
    "batch_v1.CronJob": _cron_job,
    "batch_v1.Job": _job,
    "core_v1.PodTemplate": _pod_template,
    "core_v1.ReplicationController": _replication_controller,
    "autoscaling_v2.HorizontalPodAutoscaler": _autoscaler,
    "policy_v1.PodDisruptionBudget": _disruption_budget,
}
