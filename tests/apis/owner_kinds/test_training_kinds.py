"""Q11: the groups of training jobs."""

from __future__ import annotations

import pytest

from apportion.apis.owner_kinds.rows import OwnerKindError
from tests.apis.owner_kinds.owners import Json, member, owner

REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  labels: {kai.scheduler/queue: research}
spec:
  parallelism: 4
  completions: 8
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox}]
"""
CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
  labels: {kai.scheduler/queue: nightly, priorityClassName: build}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}}}
"""
PYTORCH = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: pytorch-simple
  labels: {kai.scheduler/queue: vision, kai.scheduler/preemptibility: non-preemptible}
spec:
  runPolicy:
    cleanPodPolicy: None
    schedulingPolicy: {priorityClass: build}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template: {spec: {containers: [{name: pytorch, image: pytorch-mnist}]}}
    Worker:
      replicas: 3
      restartPolicy: OnFailure
      template: {spec: {containers: [{name: pytorch, image: pytorch-mnist}]}}
"""
MPI = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: pi}
spec:
  slotsPerWorker: 1
  runPolicy: {cleanPodPolicy: Running}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template: {spec: {containers: [{name: mpi-launcher, image: mpi-pi}]}}
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: mpi-worker, image: mpi-pi}]}}
"""
TENSORFLOW = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: dist-mnist}
spec:
  tfReplicaSpecs:
    PS: {replicas: 2, template: {spec: {containers: [{name: tensorflow, image: tf}]}}}
    Worker: {replicas: 4, template: {spec: {containers: [{name: tensorflow, image: tf}]}}}
    Chief: {template: {spec: {containers: [{name: tensorflow, image: tf}]}}}
"""
XGBOOST = """
apiVersion: kubeflow.org/v1
kind: XGBoostJob
metadata: {name: iris}
spec:
  xgbReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [{name: xgboost, image: xgb}]}}}
    Worker: {replicas: 2, template: {spec: {containers: [{name: xgboost, image: xgb}]}}}
"""
JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: paired}
spec:
  replicatedJobs:
    - name: leader
      template: {spec: {parallelism: 1, completions: 1, template: {spec: {containers: [{name: a, image: b}]}}}}
    - name: workers
      replicas: 2
      template: {spec: {parallelism: 4, completions: 3, template: {spec: {containers: [{name: a, image: b}]}}}}
"""
TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: llm
  labels: {kai.scheduler/queue: language}
spec:
  runtimeRef: {name: torch-distributed}
  trainer: {numNodes: 4, resourcesPerNode: {requests: {nvidia.com/gpu: 1}}}
"""
TRAIN_JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: llm}
spec:
  replicatedJobs:
    - name: dataset-initializer
      replicas: 1
      template: {spec: {template: {spec: {containers: [{name: a, image: b}]}}}}
    - name: node
      replicas: 1
      dependsOn: [{name: dataset-initializer, status: Complete}]
      template: {spec: {parallelism: 4, completions: 4, template: {spec: {containers: [{name: a, image: b}]}}}}
"""


def with_spec(text: str, **fields: object) -> Json:
    changed = owner(text)
    changed["spec"] |= fields
    return changed


def test_q11_a_job_is_one_group_with_minimum_one_and_names_its_queue() -> None:
    found = member(JOB)
    assert found.owner is not None
    assert (found.owner["metadata"]["name"], found.minimum, found.subgroups) == ("train", 1, {})
    assert (found.settings.queue, found.default_priority_class) == ("research", "train")


def test_q11_each_job_of_a_cron_job_is_a_group_with_the_settings_of_the_cron_job() -> None:
    found = member(CRON_JOB, JOB)
    assert found.owner is not None
    assert found.owner["kind"] == "Job"
    assert (found.settings.queue, found.settings.priority_class) == ("nightly", "build")
    unlabelled = owner(CRON_JOB)
    del unlabelled["metadata"]["labels"]
    assert member(unlabelled, JOB).settings.queue == "research"


def test_q11_a_pytorch_job_needs_all_replicas_of_each_type() -> None:
    found = member(PYTORCH, **{REPLICA_TYPE: "worker"})
    assert (found.minimum, dict(found.subgroups), found.subgroup) == (4, {"master": 1, "worker": 3}, "worker")
    assert found.settings.priority_class == "build"
    assert (found.settings.queue, found.settings.preemptibility) == ("vision", "non-preemptible")


def test_q11_a_stated_minimum_of_a_pytorch_job_is_the_minimum() -> None:
    found = member(with_spec(PYTORCH, runPolicy={"schedulingPolicy": {"minAvailable": 2}}), **{REPLICA_TYPE: "worker"})
    assert (found.minimum, found.subgroups, found.subgroup) == (2, {}, "")


def test_q11_an_elastic_pytorch_job_needs_its_master_and_the_fewest_workers() -> None:
    found = member(with_spec(PYTORCH, elasticPolicy={"minReplicas": 2, "maxReplicas": 8}))
    assert (found.minimum, dict(found.subgroups)) == (3, {"master": 1, "worker": 2})


@pytest.mark.parametrize("label", [REPLICA_TYPE, "training.kubeflow.org/job-role"])
def test_q11_an_mpi_job_needs_launcher_and_workers(label: str) -> None:
    found = member(MPI, **{label: "launcher"})
    assert (found.minimum, dict(found.subgroups), found.subgroup) == (3, {"launcher": 1, "worker": 2}, "launcher")


def test_q11_a_launcher_that_waits_for_its_workers_is_not_waited_for() -> None:
    found = member(with_spec(MPI, launcherCreationPolicy="WaitForWorkersReady"), **{REPLICA_TYPE: "worker"})
    assert (found.minimum, found.subgroups, found.subgroup) == (2, {}, "")


def test_q11_a_tf_job_counts_all_types_and_one_where_no_number_stands() -> None:
    found = member(TENSORFLOW, **{REPLICA_TYPE: "ps"})
    assert (found.minimum, dict(found.subgroups), found.subgroup) == (7, {"ps": 2, "worker": 4, "chief": 1}, "ps")


def test_q11_an_xgboost_job_counts_master_and_workers() -> None:
    assert (member(XGBOOST).minimum, dict(member(XGBOOST).subgroups)) == (3, {"master": 1, "worker": 2})


def test_q11_a_type_with_zero_replicas_has_no_subgroup() -> None:
    job = owner(XGBOOST)
    job["spec"]["xgbReplicaSpecs"]["Worker"]["replicas"] = 0
    assert (member(job).minimum, member(job).subgroups) == (1, {})


def test_q11_a_job_set_is_one_group_of_all_its_jobs() -> None:
    found = member(JOB_SET, JOB, **{REPLICATED_JOB: "workers"})
    assert found.owner is not None
    assert found.owner["kind"] == "JobSet"
    assert (found.minimum, dict(found.subgroups), found.part) == (7, {"leader": 1, "workers": 6}, "")
    assert found.subgroup == "workers"


@pytest.mark.parametrize("ordered", [{"startupPolicy": {"startupPolicyOrder": "InOrder"}}, {}])
def test_q11_jobs_of_a_job_set_that_start_in_order_are_groups_of_their_own(ordered: Json) -> None:
    job_set = with_spec(JOB_SET, **ordered)
    if not ordered:
        job_set["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "leader", "status": "Ready"}]
    leader, workers = (member(job_set, **{REPLICATED_JOB: name}) for name in ("leader", "workers"))
    assert (leader.part, leader.minimum) == ("leader", 1)
    assert (workers.part, workers.minimum, workers.subgroups) == ("workers", 6, {})


def test_q11_a_train_job_is_grouped_by_its_job_set_and_names_the_queue() -> None:
    node = member(TRAIN_JOB, TRAIN_JOB_SET, JOB, **{REPLICATED_JOB: "node"})
    assert node.owner is not None
    assert (node.owner["kind"], node.part, node.minimum) == ("JobSet", "node", 4)
    assert node.settings.queue == "language"


@pytest.mark.parametrize("number", [-1, "3", 1.5, True])
def test_q11_a_number_that_is_none_is_named_with_its_field(number: object) -> None:
    job = owner(PYTORCH)
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = number
    with pytest.raises(OwnerKindError, match=r"spec\.pytorchReplicaSpecs\.Worker\.replicas.*whole number"):
        member(job)


def test_q05_another_word_for_preemptibility_is_named() -> None:
    job = owner(JOB)
    job["metadata"]["labels"]["kai.scheduler/preemptibility"] = "sometimes"
    with pytest.raises(OwnerKindError, match=r"sometimes.*use preemptible or non-preemptible"):
        member(job)
