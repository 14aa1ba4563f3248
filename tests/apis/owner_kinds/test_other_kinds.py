"""Q11: the groups of Ray, LeaderWorkerSet, Spark and services; kinds that a configuration adds; unknown kinds."""

from __future__ import annotations

import pytest

from apportion.apis.owner_kinds import rows, table
from apportion.apis.owner_kinds.rows import OwnerKindError
from tests.apis.owner_kinds.owners import member, owner

GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
RAY_GROUP = "ray.io/group"

RAY_CLUSTER = """
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: raycluster-complete
  labels: {ray.io/priority-class-name: build}
spec:
  rayVersion: 2.46.0
  headGroupSpec:
    rayStartParams: {}
    template: {spec: {containers: [{name: ray-head, image: ray}]}}
  workerGroupSpecs:
    - groupName: smallGroup
      replicas: 2
      minReplicas: 1
      maxReplicas: 5
      template: {spec: {containers: [{name: ray-worker, image: ray}]}}
    - groupName: tpu
      replicas: 2
      numOfHosts: 4
      template: {spec: {containers: [{name: ray-worker, image: ray}]}}
    - groupName: off
      replicas: 9
      suspend: true
      template: {spec: {containers: [{name: ray-worker, image: ray}]}}
"""
RAY_JOB = """
apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: sample
  labels: {kai.scheduler/queue: ray, ray.io/priority-class-name: inference}
spec: {entrypoint: python main.py, rayClusterSpec: {}}
"""
RAY_SERVICE = """
apiVersion: ray.io/v1
kind: RayService
metadata: {name: llm, labels: {kai.scheduler/queue: serving}}
spec: {serveConfigV2: "", rayClusterConfig: {}}
"""
SUBMITTER = """
apiVersion: batch/v1
kind: Job
metadata: {name: sample}
spec: {backoffLimit: 2}
"""
LEADER_WORKER_SET = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: vllm}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 4
    workerTemplate: {spec: {containers: [{name: vllm-worker, image: vllm}]}}
"""
SPARK = """
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata: {name: spark-pi}
spec:
  mode: cluster
  batchSchedulerOptions: {queue: root.default, priorityClassName: build}
  driver: {cores: 1, memory: 512m}
  executor: {instances: 5, cores: 1}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {kai.scheduler/queue: serving, priorityClassName: inference}}
spec: {replicas: 3}
"""
STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec: {replicas: 3}
"""
STATEFUL_SET_OF_WORKERS = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "vllm-0"}}
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-1"}}


def test_q11_a_ray_cluster_needs_its_head_and_the_fewest_workers_of_each_group() -> None:
    found = member(RAY_CLUSTER, **{RAY_GROUP: "smallGroup"})
    assert (found.minimum, dict(found.subgroups)) == (10, {"headgroup": 1, "smallgroup": 1, "tpu": 8})
    assert (found.subgroup, found.settings.priority_class) == ("smallgroup", "build")
    assert member(RAY_CLUSTER, **{RAY_GROUP: "headgroup"}).subgroup == "headgroup"


def test_q11_a_ray_cluster_that_scales_itself_needs_only_its_minimum() -> None:
    cluster = owner(RAY_CLUSTER)
    cluster["spec"]["enableInTreeAutoscaling"] = True
    assert dict(member(cluster).subgroups) == {"headgroup": 1, "smallgroup": 1}


@pytest.mark.parametrize(("top", "queue"), [(RAY_JOB, "ray"), (RAY_SERVICE, "serving")])
def test_q11_ray_jobs_and_services_are_grouped_by_their_cluster(top: str, queue: str) -> None:
    found = member(top, RAY_CLUSTER)
    assert found.owner is not None
    assert (found.owner["kind"], found.minimum, found.settings.queue) == ("RayCluster", 10, queue)


def test_q11_the_submitter_of_a_ray_job_does_not_wait_for_the_cluster() -> None:
    found = member(RAY_JOB, SUBMITTER)
    assert found.owner is not None
    assert (found.owner["kind"], found.minimum) == ("Job", 1)
    assert (found.settings.queue, found.settings.priority_class) == ("ray", "inference")


def test_q11_each_replica_of_a_leader_worker_set_is_a_group() -> None:
    leader = member(LEADER_WORKER_SET, STATEFUL_SET_OF_WORKERS, **{GROUP_INDEX: "0"})
    other = member(LEADER_WORKER_SET, STATEFUL_SET_OF_WORKERS, **{GROUP_INDEX: "1"})
    assert leader.owner == other.owner == owner(LEADER_WORKER_SET)
    assert (leader.part, leader.minimum, other.part, other.minimum) == ("0", 4, "1", 4)


def test_q11_workers_that_wait_for_their_leader_are_not_waited_for() -> None:
    waiting = owner(LEADER_WORKER_SET)
    waiting["spec"]["startupPolicy"] = "LeaderReady"
    assert member(waiting, **{GROUP_INDEX: "0"}).minimum == 1


def test_q11_a_spark_application_starts_with_its_driver() -> None:
    driver = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "spark-pi-driver"}}
    found = member(SPARK, driver)
    assert found.owner is not None
    assert (found.owner["kind"], found.minimum) == ("SparkApplication", 1)
    # The queue of another scheduler is not one of ours.
    assert (found.settings.priority_class, found.settings.queue) == ("build", "")


def test_q11_each_pod_of_a_deployment_or_stateful_set_is_a_group() -> None:
    web, db = member(DEPLOYMENT, REPLICA_SET), member(STATEFUL_SET)
    assert (web.owner, web.minimum, web.settings.queue, web.settings.priority_class) == (
        None,
        1,
        "serving",
        "inference",
    )
    assert (db.owner, db.minimum, db.settings.queue) == (None, 1, "")


def test_q11_an_unknown_owner_leaves_the_group_to_its_child_and_still_names_the_queue() -> None:
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "w", "labels": {"kai.scheduler/queue": "flows"}},
    }
    alone, job = member(workflow), member(workflow, SUBMITTER)
    assert (alone.owner, alone.minimum, alone.settings.queue) == (None, 1, "flows")
    assert job.owner is not None
    assert (job.owner["kind"], job.settings.queue) == ("Job", "flows")
    assert member().owner is None


VOLCANO = """
ownerKinds:
  - group: batch.volcano.sh
    kind: Job
    minimum: {paths: [spec.minAvailable], default: 2}
    queue: [spec.queue]
    priorityClass: [spec.priorityClassName]
    subgroups: [{at: spec.tasks, shape: list, name: name, pods: [{paths: [minAvailable, replicas]}]}]
    subgroupLabels: [volcano.sh/task-spec]
    defaultPriorityClass: build
"""


def test_q11_another_kind_is_one_more_row() -> None:
    job = owner("""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: v}
spec: {queue: research, tasks: [{name: ps, replicas: 1}, {name: worker, replicas: 4, minAvailable: 2}]}
""")
    found = member(job, configuration=VOLCANO, **{"volcano.sh/task-spec": "worker"})
    assert (found.minimum, dict(found.subgroups), found.subgroup) == (3, {"ps": 1, "worker": 2}, "worker")
    assert (found.settings.queue, found.default_priority_class) == ("research", "build")
    job["spec"] = {"minAvailable": 5}
    assert member(job, configuration=VOLCANO).minimum == 5
    job["spec"] = {}
    assert member(job, configuration=VOLCANO).minimum == 2
    assert member(job).owner is None


def test_q11_a_row_of_the_configuration_replaces_the_shipped_rows_of_its_kind() -> None:
    changed = "ownerKinds: [{group: apps, kind: StatefulSet, minimum: {paths: [spec.replicas]}}]"
    assert member(STATEFUL_SET, configuration=changed).minimum == 3
    assert member(DEPLOYMENT, configuration=changed).owner is None


def test_q11_the_table_has_the_kinds_that_people_use_with_their_resources() -> None:
    assert [(group, resource) for group, _, resource in table.shipped().kinds()] == [
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("batch", "cronjobs"),
        ("batch", "jobs"),
        ("jobset.x-k8s.io", "jobsets"),
        ("kubeflow.org", "mpijobs"),
        ("kubeflow.org", "pytorchjobs"),
        ("kubeflow.org", "tfjobs"),
        ("kubeflow.org", "xgboostjobs"),
        ("leaderworkerset.x-k8s.io", "leaderworkersets"),
        ("ray.io", "rayclusters"),
        ("ray.io", "rayjobs"),
        ("ray.io", "rayservices"),
        ("sparkoperator.k8s.io", "sparkapplications"),
        ("trainer.kubeflow.org", "trainjobs"),
    ]
    assert table.shipped().resource("ray.io", "RayJob") == "rayjobs"
    assert table.shipped().resource("ray.io", "Other") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "is not YAML"),
        ("ownerKinds: none", "use a list of kinds"),
        ("kinds: []", "use a list of kinds"),
        ("ownerKinds: [{group: a}]", r"ownerKinds\[0\].*missing required field `kind`"),
        ("ownerKinds: [{group: a, kind: B, minumum: {}}]", "unknown field `minumum`"),
        ("ownerKinds: [{group: a, kind: B, minimum: {paths: ['spec..x']}}]", r"ownerKinds\[0\]\.minimum\.paths\[0\]"),
        ("ownerKinds: [{group: a, kind: B, minimum: {default: -1}}]", r"ownerKinds\[0\]\.minimum\.default"),
        ("ownerKinds: [{group: a, kind: B, groupBy: team}]", r"ownerKinds\[0\]\.groupBy"),
        ("ownerKinds: [{group: a, kind: B, groupBy: label}]", r"ownerKinds\[0\]\.label"),
        ("ownerKinds: [{group: a, kind: B, label: x/y}]", r"ownerKinds\[0\]\.label"),
        ("ownerKinds: [{group: a, kind: B, groupBy: pod, minimum: {paths: [spec.x]}}]", "each pod is a group"),
        ("ownerKinds: [{group: a, kind: B, groupBy: child, minimum: {paths: [spec.x]}}]", "row of the child"),
        ("ownerKinds: [{group: a, kind: B, subgroups: [{at: x, shape: list}]}]", r"subgroups\[0\]\.name"),
        ("ownerKinds: [{group: a, kind: B, subgroups: [{at: x, shape: map, name: y}]}]", r"subgroups\[0\]\.name"),
        ("ownerKinds: [{group: a, kind: B}, {group: a, kind: B}]", r"ownerKinds\[1\]\.kind"),
    ],
)
def test_q11_a_bad_row_is_refused_with_field_and_fix(text: str, says: str) -> None:
    with pytest.raises(OwnerKindError, match=says):
        rows.parse(text)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("spec.a", [1]),
        ("spec.list[].x", [1, 2]),
        ("metadata.labels[a.b/c-d]", ["v"]),
        ("spec.none", []),
        ("spec.missing.deeper", []),
        ("spec.a.deeper", []),
        ("spec.a[]", []),
    ],
)
def test_q11_paths_lead_to_values(path: str, found: list[object]) -> None:
    value = {"spec": {"a": 1, "list": [{"x": 1}, {"x": 2}, 3], "none": None}, "metadata": {"labels": {"a.b/c-d": "v"}}}
    assert list(rows.find(path, value)) == found


def test_q11_a_row_that_cannot_be_used_does_not_stop_the_others() -> None:
    good = {"group": "example.com", "kind": "Training"}
    pods = {"group": "", "kind": "Pod"}
    found, problems = table.shipped().extended_by([{"group": "example.com"}, good, "no row", good, pods])
    assert ("example.com", "Training") in found
    fields = ["ownerKinds[0]", "ownerKinds[2]", "ownerKinds[3].kind", "ownerKinds[4].kind"]
    assert [problem.field for problem in problems] == fields
    assert all(problem.code == "InvalidOwnerKind" for problem in problems)
