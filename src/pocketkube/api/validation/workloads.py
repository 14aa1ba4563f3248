"""Rules for what makes pods: deployments, sets, jobs."""

from __future__ import annotations

import re
import zoneinfo
from typing import Any

from pocketkube import cron_expressions
from pocketkube.api.validation import problems
from pocketkube.api.validation.pods import pod_template
from pocketkube.api.validation.problems import Problems
from pocketkube.api.validation.selectors import label_selector, matches

Obj = dict[str, Any]

_MISMATCH = "`selector` does not match template `labels`"
_PERCENT = re.compile(r"[0-9]+%")
_UID_LABEL = "batch.kubernetes.io/controller-uid"
_MOST_INDEXED = 100_000
_ZONE_PART = re.compile(r"(?!-)[A-Za-z.\-_0-9+]{1,14}", re.ASCII)
_SET_FIELDS = (
    *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
    *("persistentVolumeClaimRetentionPolicy", "minReadySeconds"),
)


def deployment(found: Problems, new: Obj, old: Obj | None) -> None:
    spec = new.get("spec") or {}
    found.not_negative("spec.replicas", spec.get("replicas"))
    _selector_and_template(found, spec, "deployment")
    _deployment_strategy(found, spec.get("strategy") or {})
    found.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    found.not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        found.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    _same_selector(found, spec, old)


def replica_set(found: Problems, new: Obj, old: Obj | None) -> None:
    spec = new.get("spec") or {}
    found.not_negative("spec.replicas", spec.get("replicas"))
    found.not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    _selector_and_template(found, spec, "deployment")
    _same_selector(found, spec, old)


def daemon_set(found: Problems, new: Obj, old: Obj | None) -> None:
    spec = new.get("spec") or {}
    _selector_and_template(found, spec, "daemonset", selector_required=False)
    strategy = spec.get("updateStrategy") or {}
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate") or {}
    if kind not in ("RollingUpdate", "OnDelete"):
        shown = {"Type": kind, "RollingUpdate": None}
        found.unsupported("spec.updateStrategy", shown, ("RollingUpdate", "OnDelete"))
    elif kind == "RollingUpdate":
        here = "spec.updateStrategy.rollingUpdate"
        for field in ("maxUnavailable", "maxSurge"):
            count_or_percent(found, f"{here}.{field}", rolling.get(field, 0))
        surge, unavailable = _is_zero(rolling.get("maxSurge", 0)), _is_zero(rolling.get("maxUnavailable", 0))
        if surge and unavailable:
            found.required(f"{here}.maxUnavailable", "cannot be 0 when maxSurge is 0")
        elif not surge and not unavailable:
            found.invalid(f"{here}.maxSurge", rolling.get("maxSurge"), "may not be set when maxUnavailable is non-zero")
    _same_selector(found, spec, old)


def stateful_set(found: Problems, new: Obj, old: Obj | None) -> None:
    spec = new.get("spec") or {}
    if spec.get("podManagementPolicy") not in ("OrderedReady", "Parallel"):
        why = "must be 'OrderedReady' or 'Parallel'"
        found.invalid("spec.podManagementPolicy", spec.get("podManagementPolicy"), why)
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        shown = {"Type": strategy.get("type"), "RollingUpdate": None}
        found.invalid("spec.updateStrategy", shown, "must be 'RollingUpdate' or 'OnDelete'")
    partition = (strategy.get("rollingUpdate") or {}).get("partition")
    found.not_negative("spec.updateStrategy.rollingUpdate.partition", partition)
    found.not_negative("spec.replicas", spec.get("replicas"))
    _selector_and_template(found, _with_claims(spec), "statefulset")
    before = (old or {}).get("spec") or {}
    if old is not None and any(spec.get(each) != before.get(each) for each in {*spec, *before} - set(_SET_FIELDS)):
        listed = ", ".join(f"'{field}'" for field in _SET_FIELDS[:-1])
        why = f"updates to statefulset spec for fields other than {listed} and '{_SET_FIELDS[-1]}' are forbidden"
        found.forbidden("spec", why)


def _with_claims(spec: Obj) -> Obj:
    """The template as its pods will be: every claim template is a volume too."""
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    claims = [{"name": (each.get("metadata") or {}).get("name")} for each in spec.get("volumeClaimTemplates") or []]
    claimed = {claim["name"] for claim in claims}
    kept = [each for each in pod.get("volumes") or [] if each.get("name") not in claimed]
    volumes = kept + [each | {"emptyDir": {}} for each in claims]
    return {**spec, "template": {**template, "spec": {**pod, "volumes": volumes}}}


def job(found: Problems, new: Obj, old: Obj | None) -> None:
    spec, metadata = new.get("spec") or {}, new.get("metadata") or {}
    selector = spec.get("selector")
    if selector is None:
        found.required("spec.selector")
    elif not spec.get("manualSelector"):
        own = {"matchLabels": {_UID_LABEL: metadata.get("uid")}}
        if old is None and selector not in (own, {"matchLabels": {"controller-uid": metadata.get("uid")}}):
            found.invalid("spec.selector", selector, "`selector` not auto-generated")
    _job_spec(found, "spec", spec)
    template_labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if selector is not None and not matches(selector, template_labels):
        found.invalid("spec.template.metadata.labels", template_labels or None, _MISMATCH)
    if old is not None:
        _job_update(found, spec, old.get("spec") or {})


def cron_job(found: Problems, new: Obj, old: Obj | None) -> None:
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    if not schedule:
        found.required("spec.schedule")
    else:
        _schedule(found, schedule, zone, allowed_zone="TZ" in before.get("schedule", ""))
    found.not_negative("spec.startingDeadlineSeconds", spec.get("startingDeadlineSeconds"))
    if zone is not None and (wrong := _bad_time_zone(zone)) and (old is None or zone != before.get("timeZone")):
        found.invalid("spec.timeZone", zone, wrong)
    policies = ("Allow", "Forbid", "Replace")
    found.one_of("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), policies)
    _job_spec(found, "spec.jobTemplate.spec", (spec.get("jobTemplate") or {}).get("spec") or {})


def _selector_and_template(found: Problems, spec: Obj, kind: str, *, selector_required: bool = True) -> None:
    selector, template = spec.get("selector"), spec.get("template") or {}
    usable = False
    if selector is None:
        if selector_required:
            found.required("spec.selector")
    else:
        usable = label_selector(found, "spec.selector", selector)
        if usable and not any(selector.values()):
            usable = False
            found.invalid("spec.selector", selector, f"empty selector is invalid for {kind}")
        elif not usable:
            found.invalid("spec.selector", selector, "invalid label selector")
    given = (template.get("metadata") or {}).get("labels") or {}
    if selector is None or (usable and not matches(selector, given)):
        found.invalid("spec.template.metadata.labels", given or None, _MISMATCH)
    pod_template(found, "spec.template", template)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy != "Always" and policy in ("OnFailure", "Never"):
        found.unsupported("spec.template.spec.restartPolicy", policy, ("Always",))
    if "activeDeadlineSeconds" in (template.get("spec") or {}):
        why = "activeDeadlineSeconds in ReplicaSet is not Supported"
        found.forbidden("spec.template.spec.activeDeadlineSeconds", why)


def _same_selector(found: Problems, spec: Obj, old: Obj | None) -> None:
    if old is not None:
        found.immutable("spec.selector", spec.get("selector"), (old.get("spec") or {}).get("selector"))


def _deployment_strategy(found: Problems, strategy: Obj) -> None:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind not in ("Recreate", "RollingUpdate"):
        found.unsupported("spec.strategy", {"Type": kind, "RollingUpdate": None}, ("Recreate", "RollingUpdate"))
    elif kind == "Recreate" and rolling is not None:
        found.forbidden("spec.strategy.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif kind == "RollingUpdate":
        here, rolling = "spec.strategy.rollingUpdate", rolling or {}
        for field in ("maxUnavailable", "maxSurge"):
            count_or_percent(found, f"{here}.{field}", rolling.get(field, 0))
        if _is_zero(rolling.get("maxUnavailable", 0)) and _is_zero(rolling.get("maxSurge", 0)):
            unavailable = rolling.get("maxUnavailable", 0)
            found.invalid(f"{here}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")


def count_or_percent(found: Problems, path: str, value: int | str) -> None:
    if isinstance(value, int):
        found.not_negative(path, value)
    elif not _PERCENT.fullmatch(value):
        found.invalid(path, value, problems.PERCENT)


def _is_zero(value: int | str) -> bool:
    return value in (0, "0%")


def _job_spec(found: Problems, path: str, spec: Obj) -> None:
    for field in (
        *("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"),
        *("backoffLimitPerIndex", "maxFailedIndexes"),
    ):
        found.not_negative(f"{path}.{field}", spec.get(field))
    mode = spec.get("completionMode")
    if mode not in (None, "NonIndexed", "Indexed"):
        found.unsupported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    elif mode == "Indexed":
        if spec.get("completions") is None:
            found.required(f"{path}.completions", "when completion mode is Indexed")
        parallelism = spec.get("parallelism") or 0
        if parallelism > _MOST_INDEXED:
            why = f"must be less than or equal to {_MOST_INDEXED} when completion mode is Indexed"
            found.invalid(f"{path}.parallelism", parallelism, why)
    template = spec.get("template") or {}
    pod_template(found, f"{path}.template", template)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy == "Always":
        found.required(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def _job_update(found: Problems, spec: Obj, old: Obj) -> None:
    indexed = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if not indexed:
        found.immutable("spec.completions", spec.get("completions"), old.get("completions"))
    found.immutable("spec.selector", spec.get("selector"), old.get("selector"))
    new_template, old_template = _job_template(spec, old), _job_template(old, old)
    if new_template != old_template:
        found.invalid("spec.template", {"labels": {}, "Spec": {}}, problems.IMMUTABLE)
    found.immutable("spec.completionMode", spec.get("completionMode"), old.get("completionMode"))


def _job_template(spec: Obj, old: Obj) -> Obj:
    """The part of a template that is fixed: a suspended job may still change where its pods go."""
    template: Obj = spec.get("template") or {}
    if not old.get("suspend"):
        return template
    free = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
    inner = {key: value for key, value in (template.get("spec") or {}).items() if key not in free}
    return {"spec": inner}


def _schedule(found: Problems, schedule: str, zone: str | None, *, allowed_zone: bool) -> None:
    """`allowed_zone`: the object before had a zone in its schedule, which was possible once."""
    prefix, _, rest = schedule.partition(" ")
    try:
        cron_expressions.parse(rest.strip() if prefix.startswith(("TZ=", "CRON_TZ=")) else schedule)
    except cron_expressions.CronError as error:
        found.invalid("spec.schedule", schedule, str(error))
    if "TZ" in schedule and not allowed_zone:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        found.invalid("spec.schedule", schedule, why)
    elif "TZ" in schedule and zone is not None:
        found.invalid("spec.schedule", schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def _bad_time_zone(name: str) -> str:
    if not name:
        return "timeZone must be nil or non-empty string"
    if any(not _ZONE_PART.fullmatch(part) or part in {".", ".."} for part in name.split("/")):
        return f"unknown time zone {name}"
    if name.lower() == "local":
        return "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {name}"
    return ""
