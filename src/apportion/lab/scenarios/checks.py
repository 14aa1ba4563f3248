"""What the types cannot say: names that exist, and numbers that agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from apportion.apis.errors import InputError
from apportion.apis.request import POLICIES
from apportion.lab.scenarios.schema import EVERY_POLICY, Expect, Job, Scenario, ScenarioNode, as_texts, as_tuple

_MOST_IN_ANY_ORDER = 7  # slices: 5,040 orders


def node_names(scenario: Scenario) -> dict[str, ScenarioNode]:
    """Every node of every pool."""
    found: dict[str, ScenarioNode] = {}
    for name, node in scenario.nodes.items():
        for each in (name,) if node.count is None else (f"{name}-{number}" for number in range(node.count)):
            if each in found:
                raise InputError(f"nodes.{name}", each, "is the name of two nodes: rename one of them")
            found[each] = node
    return found


def policies(scenario: Scenario) -> tuple[str, ...]:
    return POLICIES if scenario.policy == EVERY_POLICY else as_texts(scenario.policy)


def consistent(scenario: Scenario) -> None:
    if not scenario.name:
        raise InputError("name", scenario.name, "must say what the scenario is about")
    nodes = node_names(scenario)
    for policy in policies(scenario):
        _policy("policy", policy, f"{', '.join(POLICIES)} or {EVERY_POLICY}")
    pods: dict[str, Job] = {}
    for job in scenario.jobs:
        _job(job, nodes)
        _known(f"jobs.{job.name}.queue", (job.queue,) if job.queue is not None else (), "queues", scenario.queues)
        for name in {job.name, *job.pod_names()}:
            if name in pods:
                raise InputError(f"jobs.{job.name}.name", name, "is the name of two jobs or pods: rename one of them")
            pods[name] = job
    if len(shuffled := [job.name for job in scenario.jobs if job.any_order]) > 1:
        raise InputError("jobs", shuffled, "only one job may have anyOrder")
    _mig_mode(scenario, nodes)
    for name, queue in scenario.queues.items():
        _known(f"queues.{name}.parent", (queue.parent,) if queue.parent else (), "queues", scenario.queues)
    _expectation(scenario.expect, pods, nodes)
    _known("expect.shares", scenario.expect.shares, "queues", scenario.queues)


def _known(field: str, named: Iterable[str], kind: str, known: Iterable[str]) -> None:
    for name in named:
        if name not in known:
            raise InputError(field, name, f"must be one of the {kind} {', '.join(known) or 'none'}")


def _policy(field: str, policy: str, known: str) -> None:
    if policy not in POLICIES:
        raise InputError(field, policy, f"must be one of {known}", code="UnknownPolicy")


def _job(job: Job, nodes: Mapping[str, ScenarioNode]) -> None:
    field = f"jobs.{job.name}"
    if not job.name:
        raise InputError(field, job.name, "needs a name")
    if job.policy is not None:
        _policy(f"{field}.policy", job.policy, ", ".join(POLICIES))
    if job.fraction is not None and job.memory is not None:
        raise InputError(f"{field}.memory", job.memory, "give either fraction or memory")
    if job.min is not None and job.min > job.pods:
        raise InputError(f"{field}.min", job.min, f"must not be more than the number of pods, {job.pods}")
    _running_job(job, nodes, field)
    if job.any_order and (not isinstance(job.mig, list) or len(job.mig) > _MOST_IN_ANY_ORDER or job.on is not None):
        fix = f"needs a pending job with mig as a list of at most {_MOST_IN_ANY_ORDER}"
        raise InputError(f"{field}.anyOrder", job.any_order, fix)


def _running_job(job: Job, nodes: Mapping[str, ScenarioNode], field: str) -> None:
    for name in (*job.nodes(), *(claim.node for claim in job.claims)):
        if name not in nodes:
            raise InputError(f"{field}.on", name, f"must be one of the nodes {', '.join(nodes)}")
    if job.on is not None and len(job.nodes()) != job.pods:
        raise InputError(f"{field}.on", job.on, f"must name a node for each of the {job.pods} pods")
    for key, value in (("device", job.device), ("start", job.start)):
        if value is not None and job.on is None:
            raise InputError(f"{field}.{key}", value, "needs on: it is about a job that runs at the start")
        if value is not None and job.pods > 1:
            raise InputError(f"{field}.{key}", value, "needs a job of one pod: make a job of each pod")
    if job.claims and (job.on is not None or job.pods > 1):
        raise InputError(f"{field}.claims", job.name, "needs one pending pod: with on its slices are claimed anyway")


def _mig_mode(scenario: Scenario, nodes: Mapping[str, ScenarioNode]) -> None:
    """GPUs are in MIG mode where slices alone are asked for; where both are, the nodes must say it."""
    if not (asks_for_slices(scenario) and asks_for_gpus(scenario)):
        return
    for name, node in nodes.items():
        if node.mig is None and _leaves_open(node):
            fix = "say mig: true or mig: false, because the jobs ask for slices and for whole GPUs or shares"
            raise InputError(f"nodes.{name}.mig", None, fix)


def _leaves_open(node: ScenarioNode) -> bool:
    if isinstance(node.gpus, int):
        return node.gpus > 0
    return any(gpus.mig is None and gpus.count for gpus in node.gpus)


def asks_for_slices(scenario: Scenario) -> bool:
    return any(job.mig for job in scenario.jobs)


def asks_for_gpus(scenario: Scenario) -> bool:
    return any(job.gpus or job.fraction is not None or job.memory is not None for job in scenario.jobs)


def _expectation(expect: Expect, pods: Mapping[str, Job], nodes: Mapping[str, ScenarioNode]) -> None:
    if expect == Expect():
        raise InputError("expect", {}, "says nothing: name at least who is running or pending")
    mentioned: list[tuple[str, Iterable[str]]] = [
        ("running", expect.running),
        ("pending", expect.pending),
        ("where", expect.where),
        ("notWhere", expect.not_where),
        ("device", expect.device),
        ("start", expect.start),
        ("reason", expect.reason),
        ("layer", expect.layer),
        ("message", expect.message),
        ("partly", expect.partly),
        *(("together", group) for group in expect.together),
        *(("apart", group) for group in expect.apart),
    ]
    _company(expect)
    for key, named in mentioned:
        for name in named:
            if name not in pods:
                raise InputError(f"expect.{key}", name, f"must be a job or a pod of a job: {', '.join(pods) or 'none'}")
    _one_pod(expect, pods)
    placed = [place for where in expect.where.values() for place in as_texts(where)]
    avoided = [place for where in expect.not_where.values() for place in as_texts(where)]
    told = [node for reason in expect.reason.values() if isinstance(reason, dict) for node in reason]
    for key, named in (("where", placed), ("notWhere", avoided), ("uses", expect.uses), ("reason", told)):
        _known(f"expect.{key}", named, "nodes", nodes)


def _company(expect: Expect) -> None:
    for key, groups in (("together", expect.together), ("apart", expect.apart)):
        for number, group in enumerate(groups):
            if not group:
                raise InputError(f"expect.{key}[{number}]", group, "must name jobs or pods of jobs")


def _one_pod(expect: Expect, pods: Mapping[str, Job]) -> None:
    for key, values in (("device", expect.device), ("start", expect.start)):
        for name, value in values.items():
            if pods[name].pods > 1 and pods[name].name == name:
                raise InputError(f"expect.{key}.{name}", as_tuple(value), "name one pod of the job, such as x-0")
    for name, where in expect.where.items():
        count = pods[name].pods if pods[name].name == name else 1
        if len(as_texts(where)) != count and not isinstance(where, str):
            raise InputError(f"expect.where.{name}", where, f"must name a node for each of the {count} pods")
