"""Static MIG devices, whole GPUs and `nvidia-smi` on a real kubelet and in an image that has nothing but busybox."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.environments.installed import Installed
from tests.environments.waiting import until

pytestmark = pytest.mark.real

QUERY = "nvidia-smi --query-gpu=name,memory.total --format=csv"
LOOK = f"env | grep NVIDIA_VISIBLE_DEVICES; nvidia-smi -L; {QUERY}; nvidia-smi"
WAIT = "trap 'exit 0' TERM; while true; do sleep 0.2; done"
SMALL, MEDIUM = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
GPUS = [
    {"product": "NVIDIA-H200", "count": 2, "memoryMiB": 71680},
    {"product": "NVIDIA L4", "count": 1, "mig": False},
    {"product": "NVIDIA A100-PCIE-40GB", "count": 1},
]
CONFIG = {"mig-configs": {"selected": [{"devices": [0, 1], "mig-devices": {"2g.20gb": 3, "1g.10gb": 1}}]}}

QUEUES = "/apis/scheduling.run.ai/v2/queues"

Json = dict[str, Any]


@pytest.fixture
def laid_out(real_planes: Installed) -> Iterator[Installed]:
    """The node's GPUs: two cut beforehand, one whole, one cut on demand."""
    node = f"/api/v1/nodes/{real_planes.node.name}"
    before = real_planes.cluster.api.get(node)["metadata"].get("annotations", {})
    wanted = {"apportion.io/emulated-gpus": json.dumps(GPUS), "run.ai/mig.config": json.dumps(CONFIG)}
    real_planes.cluster.api.merge(node, {"metadata": {"annotations": wanted}})
    until(lambda: amounts(real_planes) == {"nvidia.com/gpu": "1", SMALL: "2", MEDIUM: "6"}, "the devices are there")
    yield real_planes
    restored = {key: before.get(key) for key in wanted}
    real_planes.cluster.api.merge(node, {"metadata": {"annotations": restored}})
    until(lambda: offered(real_planes, "mig.das.com/1g.5gb") == "14", "the GPUs are as before", within=60)


def test_f01_static_devices_run_on_a_real_kubelet_and_nvidia_smi_shows_them(
    laid_out: Installed, namespace: str
) -> None:
    start(laid_out, namespace, "static", {MEDIUM: 1, SMALL: 1})
    log = printed(laid_out, namespace, "static")
    uuids = visible(log)
    assert len(uuids) == 2
    assert all(uuid.startswith("MIG-") for uuid in uuids)
    assert sorted(re.findall(r"MIG (\S+) +Device +\d: \(UUID: (\S+)\)", log)) == sorted(
        zip(profiles_of(laid_out, uuids), uuids, strict=True)
    )
    assert re.search(r"\| +0MiB / 20480MiB", log)
    assert "NVIDIA-H200, 71680 MiB" in log
    until(lambda: label(laid_out) == "success", "the label says so")
    assert not laid_out.claims()


def test_f09_nvidia_smi_shows_whole_gpus_and_slices_made_on_demand(laid_out: Installed, namespace: str) -> None:
    start(laid_out, namespace, "whole", {"nvidia.com/gpu": 1})
    start(laid_out, namespace, "dynamic", {"nvidia.com/mig-2g.10gb": 1})
    whole = printed(laid_out, namespace, "whole")
    (gpu,) = visible(whole)
    assert f"GPU 0: NVIDIA L4 (UUID: {gpu})" in whole
    dynamic = printed(laid_out, namespace, "dynamic")
    (uuid,) = visible(dynamic)
    assert f"  MIG 2g.10gb     Device  0: (UUID: {uuid})" in dynamic
    assert "GPU 0: NVIDIA A100-PCIE-40GB" in dynamic
    node = laid_out.node.run("sh", "/var/lib/apportion/nvidia-smi", "-L")
    assert uuid in node
    assert node.count("MIG 2g.20gb") == 6


def test_s09_the_agent_names_the_pods_that_a_real_kubelet_gave_devices(laid_out: Installed, namespace: str) -> None:
    start(laid_out, namespace, "static", {SMALL: 1})
    start(laid_out, namespace, "whole", {"nvidia.com/gpu": 1})
    (device,) = visible(printed(laid_out, namespace, "static"))
    (gpu,) = visible(printed(laid_out, namespace, "whole"))
    pods = f"/api/v1/namespaces/{namespace}/pods"
    uids = {name: laid_out.cluster.api.get(f"{pods}/{name}")["metadata"]["uid"] for name in ("static", "whole")}
    wanted = {device: uids["static"], gpu: uids["whole"]}
    until(lambda: held(laid_out) == wanted, "both devices name their pod")
    inventory = report(laid_out)["nodeResources"]
    assert [each["gpuName"] for each in inventory["nodeGpus"]] == ["NVIDIA A100-PCIE-40GB"]
    assert inventory["migPlacement"]["7g.40gb"]["placements"] == [{"size": 8, "start": 0}]
    laid_out.kubectl("delete", "pod", "-n", namespace, "static", "whole")
    until(lambda: held(laid_out) == {}, "no device names a pod", within=60)


def test_f02_a_live_change_waits_for_pods_on_a_real_kubelet(laid_out: Installed, namespace: str) -> None:
    start(laid_out, namespace, "holder", {MEDIUM: 1})
    printed(laid_out, namespace, "holder")
    changed = {"mig-configs": {"selected": [{"devices": [0, 1], "mig-devices": ["7g.70gb"]}]}}
    annotate(laid_out, changed)
    until(lambda: offered(laid_out, "nvidia.com/mig-7g.70gb") == "1", "the empty GPU is cut anew", within=60)
    until(lambda: offered(laid_out, MEDIUM) == "1", "the other gives nothing away any more", within=60)
    assert label(laid_out) == "pending"
    laid_out.kubectl("delete", "pod", "-n", namespace, "holder")
    until(lambda: offered(laid_out, "nvidia.com/mig-7g.70gb") == "2", "then it is cut too", within=60)
    until(lambda: label(laid_out) == "success", "and the label says so", within=60)
    annotate(laid_out, CONFIG)
    until(lambda: offered(laid_out, MEDIUM) == "6", "back again", within=60)


@pytest.fixture
def queue(laid_out: Installed) -> Iterator[str]:
    body = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "mixed"}}
    laid_out.api.create(QUEUES, body | {"spec": {"resources": {"gpu": {"quota": 0}}}})
    yield "mixed"
    laid_out.api.delete(f"{QUEUES}/mixed")


def test_q08_a_queue_mixes_all_kinds_of_devices_and_loses_what_others_hold(
    laid_out: Installed, namespace: str, queue: str
) -> None:
    def status(**wanted: str) -> None:
        def said() -> bool:
            found = laid_out.api.get(f"{QUEUES}/{queue}").get("status", {})
            return {field: found.get(field, {}).get("nvidia.com/gpu") for field in wanted} == wanted

        until(said, f"the queue says {wanted}", within=60)

    pods = {"whole": {"nvidia.com/gpu": 1}, "static": {MEDIUM: 1}, "dynamic": {"nvidia.com/mig-2g.10gb": 1}}
    for name, limits in pods.items():
        start(laid_out, namespace, name, limits, queue=queue)
    for name in pods:
        printed(laid_out, namespace, name)
    status(allocated=f"{1000 + 250 + 250}m", fairShare="1500m")
    start(laid_out, namespace, "greedy", {"nvidia.com/gpu": 8}, queue=queue)
    status(allocated="1500m", requested="9500m", fairShare="4")
    laid_out.kubectl("delete", "pod", "-n", namespace, "whole")
    start(laid_out, namespace, "foreign", pods["whole"])
    printed(laid_out, namespace, "foreign")
    status(allocated="500m", requested="8500m", fairShare="3")
    laid_out.kubectl("delete", "pod", "-n", namespace, "foreign")
    status(allocated="500m", fairShare="4")


def start(planes: Installed, namespace: str, name: str, limits: dict[str, int], queue: str = "") -> None:
    """For kube-scheduler, or for ours in a queue."""
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sh", "-c", f"{LOOK}; {WAIT}"],
        "resources": {"limits": {key: str(value) for key, value in limits.items()}},
    }
    ours: Json = {"schedulerName": "kai-scheduler"} if queue else {}
    metadata = {"name": name, "labels": {"kai.scheduler/queue": queue} if queue else {}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **ours}}
    planes.cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)


def printed(planes: Installed, namespace: str, name: str) -> str:
    def log() -> str:
        text = planes.kubectl("logs", "-n", namespace, name)
        return text if "No running processes found" in text else ""

    return until(log, f"{name} has looked around", within=90, pause=0.3)


def visible(log: str) -> list[str]:
    found = re.search(r"^NVIDIA_VISIBLE_DEVICES=(\S+)$", log, re.MULTILINE)
    assert found is not None
    return found[1].split(",")


def profiles_of(planes: Installed, uuids: list[str]) -> list[str]:
    """What the emulated hardware says of these devices."""
    hardware = json.loads(planes.node.path("/var/lib/apportion/emulated-gpus.json").read_text())
    known = {cut["uuid"]: cut["profile"] for gpu in hardware["gpus"] for cut in gpu.get("fixed") or ()}
    return [known[uuid] for uuid in uuids]


def annotate(planes: Installed, config: Json) -> None:
    change = {"metadata": {"annotations": {"run.ai/mig.config": json.dumps(config)}}}
    planes.cluster.api.merge(f"/api/v1/nodes/{planes.node.name}", change)


def report(planes: Installed) -> Json:
    path = f"/apis/inference.redhat.com/v1alpha1/namespaces/das-operator/nodeaccelerators/{planes.node.name}"
    status: Json = planes.cluster.api.get(path)["status"]
    return status


def held(planes: Installed) -> dict[str, str]:
    """Pod uids by the device they hold, whole GPUs and static slices."""
    gpus = report(planes)["gpus"]
    slices = [piece for gpu in gpus for piece in gpu.get("fixed", ())]
    static = {piece["uuid"]: piece["podUID"] for piece in slices if piece.get("podUID")}
    whole = [(gpu["uuid"], each) for gpu in gpus for each in gpu.get("holders", ())]
    return static | {uuid: each["podUID"] for uuid, each in whole if each["kind"] == "whole"}


def amounts(planes: Installed) -> dict[str, str]:
    status = planes.cluster.api.get(f"/api/v1/nodes/{planes.node.name}")["status"]
    shown = [
        {key: value for key, value in status[kind].items() if key.startswith("nvidia.com/") and value != "0"}
        for kind in ("capacity", "allocatable")
    ]
    assert shown[0] == shown[1]
    return shown[0]


def offered(planes: Installed, resource: str) -> str:
    status = planes.cluster.api.get(f"/api/v1/nodes/{planes.node.name}")["status"]
    return str(status["allocatable"].get(resource, ""))


def label(planes: Installed) -> str | None:
    labels: dict[str, str] = planes.cluster.api.get(f"/api/v1/nodes/{planes.node.name}")["metadata"]["labels"]
    return labels.get("nvidia.com/mig.config.state")
