"""G01 to G03, D03, D05: pods with shares on either API server, which calls the webhook through its Service."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apportion import manifests
from tests.admission import webhook_service
from tests.admission.accounts import refusals, separate_cluster
from tests.admission.test_gpu_doors import RUNTIME_CLASS, debug, namespace
from tests.admission.test_shares import PREFIX, VOID, environments, prefix_of, references
from tests.environments.api import RefusedError
from tests.environments.cluster import Cluster
from tests.environments.waiting import until

pytestmark = pytest.mark.kubectl
__all__ = ["separate_cluster"]  # a fixture, found by name

Json = dict[str, Any]

WORKLOAD: Json = {"name": "gpu-workload", "image": "ubuntu", "args": ["sleep", "infinity"]}
OTHER: Json = {"name": "other", "image": "ubuntu", "args": ["sleep", "infinity"]}


def document(annotations: Json, *containers: Json, name: str = "gpu-sharing") -> Json:
    """A pod as document 001 has it."""
    metadata = {"name": name, "labels": {"kai.scheduler/queue": "default-queue"}, "annotations": annotations}
    spec = {"schedulerName": "kai-scheduler", "containers": list(containers) or [WORKLOAD]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


BY_FRACTION = document({"gpu-fraction": "0.5"})
BY_MEMORY = document({"gpu-memory": "2000"})
NAMED = document(
    {"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu-workload"}, OTHER, WORKLOAD, name="gpu-sharing-named"
)


@pytest.fixture(scope="module")
def installed(separate_cluster: Cluster) -> Cluster:
    """Everything but the workloads."""
    chosen = [entry for entry in manifests.load() if entry["kind"] not in {"Deployment", "DaemonSet"}]
    separate_cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(chosen))
    return separate_cluster


@pytest.fixture(scope="module", autouse=True)
def webhook(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with webhook_service.running(installed, tmp_path_factory.mktemp("webhook")):
        yield


@pytest.fixture
def workspace(installed: Cluster) -> Iterator[str]:
    name = f"shares-{secrets.token_hex(3)}"
    namespace(installed, name)
    yield name
    installed.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def on(installed: Cluster, workspace: str) -> Cluster:
    switch(installed, workspace, gpuSharing=True)
    return installed


def test_g01_d04_r01_shares_are_refused_until_sharing_is_switched_on(installed: Cluster, workspace: str) -> None:
    installed.kubectl("delete", "config.kai.scheduler", "--all")
    until(lambda: "GPU sharing is switched off" in applied(installed, workspace, BY_FRACTION, dry=True), "off")
    for body, field in ((BY_FRACTION, "gpu-fraction]: '0.5'"), (BY_MEMORY, "gpu-memory]: '2000'")):
        said = applied(installed, workspace, body)
        assert f"metadata.annotations[{field}: GPU sharing is switched off" in said, said
        assert "spec.admission.gpuSharing to true in the Config kai-config" in said
    switch(installed, workspace, gpuSharing=True)
    assert "created" in applied(installed, workspace, BY_FRACTION)
    switch(installed, workspace, gpuSharing=False)
    assert "GPU sharing is switched off" in applied(installed, workspace, NAMED)
    assert refusals(installed) == []


def test_g01_the_documents_command_prints_false_unless_sharing_is_switched_on(installed: Cluster) -> None:
    given: tuple[Json, ...] = (
        {},
        {"spec": {}},
        {"spec": {"binder": {"cdiEnabled": True}}},
        {"spec": {"admission": {}}},
    )
    for spec in given:
        body = {"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": "kai-config"}} | spec
        installed.kubectl("delete", "config.kai.scheduler", "--all")
        installed.kubectl("create", "-f", "-", input=json.dumps(body))
        path = "jsonpath={.spec.admission.gpuSharing}"
        assert installed.kubectl("get", "config", "-n", "kai-scheduler", "kai-config", "-o", path) == "false"


def test_g03_d05_pods_of_the_document_can_be_applied_again(on: Cluster, workspace: str, tmp_path: Path) -> None:
    for body, index in ((BY_FRACTION, 0), (NAMED, 1)):
        file = tmp_path / "pod.yaml"
        file.write_text(yaml.safe_dump(body))
        on.kubectl("apply", "-n", workspace, "-f", str(file))
        path = f"/api/v1/namespaces/{workspace}/pods/{body['metadata']['name']}"
        live = on.api.get(path)
        expected = {"gpu-workload": references(f"{prefix_of(live)}-{index}")} | ({"other": [VOID]} if index else {})
        assert environments(live) == expected
        given = live["metadata"]["annotations"]
        ours = set(given) - {"kubectl.kubernetes.io/last-applied-configuration"}
        assert ours == {*body["metadata"]["annotations"], PREFIX}
        assert "unchanged" in on.kubectl("apply", "-n", workspace, "-f", str(file))
        on.kubectl("apply", "-n", workspace, "-f", str(file), "--server-side", "--force-conflicts")
        replaced = copy.deepcopy(live)
        replaced["metadata"] = {
            "name": live["metadata"]["name"],
            **{k: body["metadata"][k] for k in ("labels", "annotations")},
        }
        for each in replaced["spec"]["containers"]:
            del each["env"]
        on.api.send("PUT", path, replaced)
        again = on.api.get(path)
        assert again["spec"] == live["spec"]
        assert prefix_of(again) == prefix_of(live)


def test_d04_g06_a_copy_of_a_pod_is_refused_until_what_admission_added_is_removed(on: Cluster, workspace: str) -> None:
    assert "created" in applied(on, workspace, BY_FRACTION)
    live = on.api.get(f"/api/v1/namespaces/{workspace}/pods/gpu-sharing")
    kept = [{key: each[key] for key in ("name", "image", "args", "env")} for each in live["spec"]["containers"]]
    spec = {"schedulerName": "kai-scheduler", "containers": kept}
    copied = document({"gpu-fraction": "0.5", PREFIX: prefix_of(live)}, name="copy") | {"spec": spec}
    said = applied(on, workspace, copied)
    assert f"metadata.annotations[{PREFIX}]: '{prefix_of(live)}': is set at admission; remove the annotation" in said
    template = {"metadata": copied["metadata"] | {"labels": {"app": "a"}}, "spec": spec}
    of_set = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": of_set}
    assert "created" in applied(on, workspace, deployment)
    events = ("get", "events", "-n", workspace, "-o", "yaml")
    until(lambda: "is set at admission; remove the annotation" in on.kubectl(*events), "the event gives the fix")
    assert "created" in applied(on, workspace, document({"gpu-fraction": "0.5"}, name="copy"))
    on.kubectl("delete", "pod", "-n", workspace, "gpu-sharing", "--now")
    again = document({"gpu-fraction": "0.5", PREFIX: prefix_of(live)}) | {"spec": spec}
    assert "created" in applied(on, workspace, again), "the pod itself can be created again as it was"


def test_g02_the_second_manifest_of_the_same_name_says_to_delete_the_first_pod(on: Cluster, workspace: str) -> None:
    assert "created" in applied(on, workspace, BY_FRACTION)
    sentence = "the share of a pod cannot be changed; delete the pod first, and create it again"
    assert sentence in applied(on, workspace, BY_MEMORY)
    image = copy.deepcopy(BY_MEMORY)
    image["spec"]["containers"][0] |= {"image": "other", "args": ["other"]}
    assert sentence in applied(on, workspace, image)
    switch(on, workspace, gpuSharing=False)
    assert sentence in applied(on, workspace, BY_MEMORY)
    switch(on, workspace, gpuSharing=True)
    on.kubectl("delete", "pod", "-n", workspace, "gpu-sharing", "--now")
    assert "created" in applied(on, workspace, BY_MEMORY)


def test_g02_g03_d04_each_refusal_names_field_value_and_fix(on: Cluster, workspace: str) -> None:
    whole = WORKLOAD | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    mig = WORKLOAD | {"resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}
    visible = WORKLOAD | {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    share = {"gpu-fraction": "0.5"}
    cases = {
        "gpu-fraction]: '1.5': must be a decimal number": document({"gpu-fraction": "1.5"}),
        "gpu-memory]: '0': must be a whole number": document({"gpu-memory": "0"}),
        "MiB; request at most this much": document({"gpu-memory": "2000000000"}),
        "gpu-fraction-num-devices]: '2': requires gpu-fraction": document({"gpu-fraction-num-devices": "2"}),
        "spec.containers[0].resources.limits[nvidia.com/gpu]: 1: the pod also has": document(share, whole),
        "spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]: 1: the pod also has": document(share, mig),
        "env[NVIDIA_VISIBLE_DEVICES]: 'all': is set at admission": document(share, visible),
        "annotations[cdi.k8s.io/x]: 'nvidia.com/gpu=0'": document(share | {"cdi.k8s.io/x": "nvidia.com/gpu=0"}),
    }
    said = {text: applied(on, workspace, body) for text, body in cases.items()}
    assert {text: answer for text, answer in said.items() if text not in answer} == {}
    preset = copy.deepcopy(BY_FRACTION)
    preset["spec"]["nodeName"] = "n1"
    assert "spec.nodeName: 'n1': a pod with a GPU share must be placed" in applied(on, workspace, preset)


def test_d03_annotations_without_effect_are_warned_about(on: Cluster, workspace: str) -> None:
    other = document({"gpu-fraction": "0.5"}, name="a")
    del other["spec"]["schedulerName"]
    assert "annotation gpu-fraction has no effect with scheduler default-scheduler" in warned(on, workspace, other)
    alone = document({"gpu-fraction-container-name": "gpu-workload"}, name="b")
    assert "gpu-fraction-container-name has no effect without gpu-fraction" in warned(on, workspace, alone)
    for share in ({"gpu-fraction": "0.5"}, {}):
        mps = document(share | {"mps": "true"}, name="c")
        assert "annotation mps has no effect" in warned(on, workspace, mps)
        on.kubectl("delete", "pod", "-n", workspace, "c", "--now")
    for name in ("gpu-fraction-num-devices", "gpu-fraction-container-name"):
        other = document({name: "1"}, name="d")
        other["spec"]["schedulerName"] = "theirs"
        assert f"annotation {name} has no effect with scheduler theirs" in warned(on, workspace, other)
        on.kubectl("delete", "pod", "-n", workspace, "d", "--now")


def test_t05_containers_that_are_added_to_a_sharer_see_no_gpu(on: Cluster, workspace: str) -> None:
    applied(on, workspace, BY_FRACTION)
    path = f"/api/v1/namespaces/{workspace}/pods/gpu-sharing"
    debug(on, path, {"name": "debug"})
    (added,) = on.api.get(path)["spec"]["ephemeralContainers"]
    assert added["env"] == [VOID]
    taken = references(f"{prefix_of(on.api.get(path))}-0")[:1]
    with pytest.raises(RefusedError, match="GPUs are assigned by the scheduler"):
        debug(on, path, {"name": "again", "env": taken})


def test_g12_the_runtime_class_of_the_config_is_set_if_it_exists(on: Cluster, workspace: str) -> None:
    on.kubectl("apply", "-f", "-", input=json.dumps(RUNTIME_CLASS))
    switch(on, workspace, gpuSharing=True, gpuPodRuntimeClassName="nvidia")

    def given(**more: str) -> str | None:
        body = BY_FRACTION | {"spec": BY_FRACTION["spec"] | more}
        answer = on.kubectl("create", "-n", workspace, "-f", "-", "--dry-run=server", "-o=json", input=json.dumps(body))
        found: str | None = json.loads(answer)["spec"].get("runtimeClassName")
        return found

    until(lambda: given() == "nvidia", "the runtime class is set")
    switch(on, workspace, gpuSharing=True, gpuPodRuntimeClassName="missing")
    until(lambda: given() is None, "one that does not exist is not set")
    assert given(runtimeClassName="nvidia") == "nvidia"
    on.kubectl("delete", "runtimeclass", "nvidia")


def applied(cluster: Cluster, where: str, body: Json, *, dry: bool = False) -> str:
    options = ["--dry-run=server"] if dry else []
    return cluster.kubectl("apply", "-n", where, "-f", "-", *options, input=json.dumps(body), check=False)


def warned(cluster: Cluster, where: str, body: Json) -> str:
    return cluster.kubectl(
        "create", "-n", where, "-f", "-", "--warnings-as-errors", input=json.dumps(body), check=False
    )


def switch(cluster: Cluster, where: str, **settings: Any) -> None:
    """Change the Config, and wait until the webhook knows."""
    webhook_service.switch_sharing(cluster, **settings)
    probe = document({"gpu-fraction": "0.5"}, name="probe")
    off = not settings["gpuSharing"]
    until(lambda: ("switched off" in applied(cluster, where, probe, dry=True)) is off, "the webhook knows the Config")
