"""The webhook under its own service account, called through its Service by either API server."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apportion import manifests
from tests.admission import webhook_service
from tests.admission.accounts import refusals, remove_workloads, separate_cluster
from tests.admission.samples import both, resources
from tests.builders.pods import container, pod
from tests.environments.cluster import Cluster
from tests.environments.waiting import until

pytestmark = pytest.mark.kubectl
__all__ = ["separate_cluster"]  # a fixture, found by name

SLICED = {"nvidia.com/mig-1g.5gb": "2"}


@pytest.fixture(scope="module")
def installed(separate_cluster: Cluster) -> Cluster:
    """Everything but the workloads: the tests run what they need. It goes with the cluster."""
    chosen = [entry for entry in manifests.load() if entry["kind"] not in {"Deployment", "DaemonSet"}]
    separate_cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(chosen))
    return separate_cluster


@pytest.fixture
def workspace(installed: Cluster) -> Iterator[str]:
    name = f"sliced-{secrets.token_hex(3)}"
    installed.kubectl("create", "namespace", name)
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    until(lambda: installed.api.exists(account), "the namespace's default account")
    yield name
    installed.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def webhook(installed: Cluster, tmp_path: Path) -> Iterator[None]:
    with webhook_service.running(installed, tmp_path):
        yield


def test_d02_pods_without_a_gpu_start_while_the_webhook_is_down_and_others_do_not(
    installed: Cluster, workspace: str
) -> None:
    harmless = [
        pod("story", containers=[container(limits={"cpu": "1", "example.com/nvidia.com": "1"})]),
        pod(
            "story",
            containers=[container() | {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}],
            init=[container("i")],
        ),
        pod("story", containers=[container()], annotations={"example.com/cdi.k8s.io": "x"}),
    ]
    for index, body in enumerate(harmless):
        create(installed, workspace, f"harmless-{index}", body)
    installed.kubectl("label", "pod", "-n", workspace, "harmless-0", "seen=yes")
    installed.kubectl("create", "deployment", "-n", workspace, "plain", "--image=busybox:1.36")
    guarded = [
        pod("story", containers=[container(limits=SLICED)]),
        pod("story", containers=[container(limits={"nvidia.com/gpu": "1"})]),
        pod("story", containers=[container(limits={"mig.das.com/1g.5gb": "1"})]),
        pod("story", containers=[container(limits={"gpu.das.com/mem": "1"})]),
        pod("story", containers=[container()], init=[container("i", limits=SLICED)]),
    ]
    for index, body in enumerate(guarded):
        refusal = create(installed, workspace, f"guarded-{index}", body, check=False)
        assert "failed calling webhook" in refusal, refusal
    empty = create(
        installed, workspace, "empty", {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}, check=False
    )
    assert "spec.containers: Required value" in empty


def test_s01_m01_m02_d05_r01_an_api_server_calls_us(
    installed: Cluster, workspace: str, webhook: None, tmp_path: Path
) -> None:
    del webhook
    manifest = pod("story", containers=[container(limits=SLICED)]) | {"metadata": {"name": "story"}}
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump(manifest))
    installed.kubectl("apply", "-n", workspace, "-f", str(file))
    live = stored(installed, f"/api/v1/namespaces/{workspace}/pods/story")
    assert resources(live) == both({"mig.das.com/1g.5gb": "2", "gpu.das.com/mem": "10"})
    assert live["spec"]["schedulerName"] == "das-scheduler"
    assert "error" not in installed.kubectl("apply", "-n", workspace, "-f", str(file))
    assert "error" not in installed.kubectl(
        "apply", "-n", workspace, "-f", str(file), "--server-side", "--force-conflicts"
    )
    again = stored(installed, f"/api/v1/namespaces/{workspace}/pods/story")
    assert again["spec"] == live["spec"]

    job = {"template": {"spec": {"restartPolicy": "Never", "containers": [container(limits=SLICED)]}}}
    kind = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": workspace}, "spec": job}
    for _ in range(2):
        installed.kubectl("apply", "-f", "-", input=json.dumps(kind))
    template = stored(installed, f"/apis/batch/v1/namespaces/{workspace}/jobs/train")["spec"]["template"]
    assert resources(template)["limits"] == {"mig.das.com/1g.5gb": "2", "gpu.das.com/mem": "10"}

    wrong = pod("story", containers=[container(limits={"nvidia.com/mig-1g.6gb": "1", "nvidia.com/mig-1g.7gb": "1"})])
    refusal = create(installed, workspace, "wrong", wrong, check=False)
    assert (
        "spec.containers[0].resources.limits[nvidia.com/mig-1g.7gb]: '1g.7gb': no GPU model has this MIG profile"
        in refusal
    )
    assert refusals(installed) == []


def test_d03_pods_that_would_get_no_slice_are_refused_and_shares_without_effect_are_warned_about(
    installed: Cluster, workspace: str, webhook: None
) -> None:
    del webhook
    foreign = pod("story", containers=[container(limits={"mig.das.com/1g.5gb": "1"})], schedulerName="theirs")
    assert "this scheduler does not support MIG slices" in create(installed, workspace, "foreign", foreign, check=False)
    preset = pod("story", containers=[container(limits=SLICED)], nodeName="n1")
    assert "remove nodeName" in create(installed, workspace, "preset", preset, check=False)
    annotated = {"name": "share", "annotations": {"gpu-fraction": "0.5"}}
    share = json.dumps(pod("story", containers=[container()]) | {"metadata": annotated})
    said = installed.kubectl("create", "-n", workspace, "-f", "-", "--warnings-as-errors", input=share, check=False)
    assert "annotation gpu-fraction has no effect with scheduler default-scheduler" in said


def test_r02_kubectl_can_apply_the_whole_folder_repeatedly(installed: Cluster) -> None:
    folder = str(Path(manifests.__file__).parent)
    try:
        assert "das-daemonset created" in installed.kubectl("apply", "-f", folder)
        again = installed.kubectl("apply", "-f", folder).splitlines()
        # kubectl always sends the selector of a PodDisruptionBudget: its patch strategy is replace.
        assert not [line for line in again if "configured" in line and "poddisruptionbudget" not in line]
        assert installed.kubectl("apply", "-f", folder, "--server-side", "--force-conflicts", "--dry-run=server")
    finally:
        remove_workloads(installed)


def create(cluster: Cluster, namespace: str, name: str, body: dict[str, Any], *, check: bool = True) -> str:
    annotations = body.get("metadata", {}).get("annotations", {})
    named = body | {"metadata": {"name": name, "annotations": annotations}}
    return cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(named), check=check)


def stored(cluster: Cluster, path: str) -> dict[str, Any]:
    return cluster.api.get(path)
