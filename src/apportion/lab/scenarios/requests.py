"""The pods of a job as the deciding code sees them: written as Kubernetes objects and read like any other pod."""

from __future__ import annotations

from typing import Any

import msgspec

from apportion.apis import names, profiles
from apportion.apis.errors import InputError
from apportion.apis.pods import Pod
from apportion.apis.request import Request, parse_pod
from apportion.lab.scenarios import notation
from apportion.lab.scenarios.schema import Ask, Job, PodTerm

Json = dict[str, Any]


def of_job(job: Job, position: int) -> tuple[Request, ...]:
    """One request per pod; `position` in the list of jobs is the age."""
    field = f"jobs.{job.name}"
    spec = _spec(job, field) | {"priority": job.priority, "schedulingGates": [{"name": gate} for gate in job.gates]}
    annotations = _annotations(job) | ({names.POLICY: job.policy} if job.policy else {})
    minutes, seconds = divmod(position, 60)
    hours, minutes = divmod(minutes, 60)
    return tuple(
        _request(
            {
                "name": name,
                "namespace": job.namespace,
                "uid": f"uid-{name}",
                "labels": job.labels | ({names.QUEUE_LABEL: job.queue} if job.queue else {}),
                "annotations": annotations | ({names.POD_GROUP: job.name} if job.pods > 1 else {}),
                "ownerReferences": [] if job.bare else [_controller(job)],
                "creationTimestamp": f"2026-01-01T{hours:02}:{minutes:02}:{seconds:02}Z",
            },
            spec,
            field,
        )
        for name in job.pod_names()
    )


def _controller(job: Job) -> Json:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": f"job-{job.name}", "controller": True}


def of_mix(ask: Ask, number: int) -> Request:
    """A request that the mix is made of."""
    field = f"mix[{number}]"
    metadata = {"name": f"mix-{number}", "uid": f"uid-mix-{number}", "annotations": _annotations(ask)}
    return _request(metadata, _spec(ask, field), field)


def _request(metadata: Json, spec: Json, field: str) -> Request:
    try:
        return parse_pod(msgspec.convert({"metadata": metadata, "spec": spec}, Pod))
    except InputError as error:
        raise InputError(f"{field}: {error.field}", error.value, error.fix, code=error.code) from None
    except msgspec.ValidationError as error:
        raise InputError(field, metadata["name"], str(error)) from None


def _annotations(ask: Ask) -> dict[str, str]:
    values = {
        names.GPU_FRACTION: ask.fraction,
        names.GPU_SHARE_MEMORY: ask.memory,
        names.GPU_FRACTION_DEVICES: ask.num_devices,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _spec(ask: Ask, field: str) -> Json:
    shared = ask.fraction is not None or ask.memory is not None
    return {
        "schedulerName": names.KAI_SCHEDULER if shared else names.DAS_SCHEDULER,
        "containers": _containers(ask),
        "nodeSelector": ask.selector,
        "affinity": _affinity(ask, field),
        "tolerations": [notation.toleration(text, f"{field}.tolerations") for text in ask.tolerations],
        "topologySpreadConstraints": [{**_term(each), "maxSkew": each.max_skew} for each in ask.topology_spread],
    }


def _containers(ask: Ask) -> list[Json]:
    """Slices that are given as a list have a container each, in that order."""
    limits: Json = {"cpu": ask.cpu, "memory": ask.host_memory, **ask.limits}
    if ask.gpus:
        limits[names.NVIDIA_GPU] = ask.gpus
    if isinstance(ask.mig, dict):
        limits |= {profiles.slice_resource(profile): count for profile, count in ask.mig.items()}
        return [_container("main", limits)]
    each = [_container(f"c{n}", {profiles.slice_resource(profile): 1}) for n, profile in enumerate(ask.mig)]
    return [_container("main", limits), *each]


def _container(name: str, limits: Json) -> Json:
    return {"name": name, "resources": {"limits": limits}}


def _affinity(ask: Ask, field: str) -> Json:
    nodes: Json = {}
    if ask.node_affinity:
        required = [notation.requirement(text, f"{field}.nodeAffinity") for text in ask.node_affinity]
        nodes["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [{"matchExpressions": required}]
        }
    if ask.preferred_nodes:
        nodes["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": weight, "preference": {"matchExpressions": [_preferred(text, field)]}}
            for text, weight in ask.preferred_nodes.items()
        ]
    near, away = ([_term(term) for term in terms] for terms in (ask.pod_affinity, ask.pod_anti_affinity))
    found: Json = {"nodeAffinity": nodes} if nodes else {}
    for key, terms in (("podAffinity", near), ("podAntiAffinity", away)):
        if terms:
            found[key] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return found


def _preferred(text: str, field: str) -> Json:
    return notation.requirement(text, f"{field}.preferredNodes")


def _term(term: PodTerm) -> Json:
    return {"topologyKey": term.topology_key, "labelSelector": {"matchLabels": term.labels}}
