"""T04, R01: what the tokens of binder, scheduler and reservation pods change of shared GPUs and their pods."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from apportion.apis import names
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.installation import Installation
from apportion.apis.shared_gpus import Sharer
from apportion.binder import reservation_pods
from apportion.binder.sharing_config import SharingConfig
from tests.environments.api import Api
from tests.manifests.installed_tokens import (
    APPLY,
    CORE,
    DENIED,
    HERE,
    JSON_PATCH,
    MERGE,
    NAMESPACE,
    OURS,
    STRATEGIC,
    InstalledTokens,
    Json,
    answer,
    status,
)

SHARING, RESERVATIONS = names.KAI_NAMESPACE, names.RESERVATION_NAMESPACE
PODS = f"{CORE}/namespaces/default/pods"
RESERVED = f"{CORE}/namespaces/{RESERVATIONS}/pods"
MAPS = f"{CORE}/namespaces/default/configmaps"
REQUESTS = "/apis/scheduling.run.ai/v1alpha2/namespaces/default/bindrequests"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SHARING}/leases"
GROUP = "3f0c9a52-0d6e-4b6c-8f5e-0d2f6a1b7c11"
Change = Callable[[Json], object]


@pytest.fixture
def binder(tokens: InstalledTokens) -> Api:
    return tokens.token("binder", namespace=SHARING)


@pytest.fixture
def sharer(tokens: InstalledTokens) -> Iterator[Json]:
    """A pending pod, which may share a GPU."""
    spec = {"schedulerName": names.KAI_SCHEDULER, "containers": [{"name": "main", "image": "busybox"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sharer", "labels": {"app": "x"}}, "spec": spec}
    yield tokens.api.create(PODS, body)
    tokens.api.delete(f"{PODS}/sharer?gracePeriodSeconds=0")


@pytest.fixture
def reservation(tokens: InstalledTokens) -> Iterator[Json]:
    made = tokens.api.create(RESERVED, reservation_pod("gpu-reservation-here-1"))
    yield made
    status(tokens.api, "DELETE", f"{RESERVED}/gpu-reservation-here-1?gracePeriodSeconds=0")


def reservation_pod(name: str) -> Json:
    """As the binder makes it, under another name."""
    config = cast("SharingConfig", SimpleNamespace(image=names.IMAGE, runtime_class=""))
    sharers = {PodUID("u"): Sharer("default", "a", milli=500)}
    node, gpu = NodeName(HERE), DeviceUUID("GPU-1")
    made = reservation_pods.body(Installation(), config, node=node, group=GROUP, planned=gpu, sharers=sharers)
    made["metadata"]["name"] = name
    return made


def owner(pod: Json) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}


def denied(api: Api, method: str, path: str, body: object = None, kind: str = "application/json") -> None:
    code, text = answer(api, method, path, body, kind)
    assert code == DENIED, (method, path, body, text)


def allowed(api: Api, method: str, path: str, body: object = None, kind: str = "application/json") -> None:
    code, text = answer(api, method, path, body, kind)
    assert code == 200, (method, path, body, text)


def changed(body: Json, change: Change) -> Json:
    made = copy.deepcopy(body)
    change(made)
    return made


# The binder


def test_r01_the_binder_reads_what_it_needs_and_no_secrets(binder: Api) -> None:
    for path in (
        f"{CORE}/pods",
        f"{CORE}/nodes",
        "/apis/scheduling.run.ai/v1alpha2/bindrequests",
        "/apis/kai.scheduler/v1/configs",
        "/apis/node.k8s.io/v1/runtimeclasses",
        f"{OURS}/nodeaccelerators",
        f"{OURS}/dasoperators",
    ):
        allowed(binder, "GET", path)
    for path in (
        f"{CORE}/secrets",
        f"{CORE}/namespaces/{SHARING}/secrets",
        f"{CORE}/configmaps",
        f"{CORE}/namespaces/kube-system/configmaps",
        f"{CORE}/events",
        f"{OURS}/allocationclaims",
        "/apis/scheduling.run.ai/v2/queues",
        "/apis/apps/v1/deployments",
    ):
        denied(binder, "GET", path)


@pytest.mark.usefixtures("sharer")
def test_t04_the_binder_changes_only_the_group_labels_of_a_pod(binder: Api) -> None:
    path = f"{PODS}/sharer"
    for body in (
        {"metadata": {"labels": {"app": "evil"}}},
        {"metadata": {"labels": {"app": None}}},
        {"metadata": {"labels": {"runai-gpu-groups": GROUP}}},
        {"metadata": {"annotations": {names.SHARED_GPUS: "[]"}}},
        {"metadata": {"annotations": {names.SHARERS: "{}"}}},
        {"metadata": {"annotations": {"example.com/evil": "yes"}}},
        {"metadata": {"finalizers": ["example.com/evil"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}},
        {"spec": {"containers": [{"name": "main", "image": "evil"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
    ):
        denied(binder, "PATCH", path, body, STRATEGIC)
    replaced = [{"op": "replace", "path": "/metadata/labels", "value": {names.GPU_GROUP_LABEL: GROUP}}]
    denied(binder, "PATCH", path, replaced, JSON_PATCH)
    several = {names.GPU_GROUP_LABEL: GROUP, f"{names.GPU_GROUP_LABEL_PREFIX}{GROUP}": GROUP}
    request = {names.BIND_REQUEST: "uid"}
    allowed(binder, "PATCH", path, {"metadata": {"labels": several, "annotations": request}}, MERGE)
    allowed(binder, "PATCH", path, {"metadata": {"labels": dict.fromkeys(several)}}, MERGE)
    applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sharer", "annotations": {"evil": "yes"}}}
    denied(binder, "PATCH", f"{path}?fieldManager=x&force=true", applied, APPLY)


@pytest.mark.usefixtures("sharer")
def test_t04_the_binder_neither_creates_nor_ends_pods_of_users(binder: Api) -> None:
    path = f"{PODS}/sharer"
    denied(binder, "PUT", path, binder.get(path))
    denied(binder, "DELETE", path)
    denied(binder, "DELETE", PODS)
    denied(binder, "POST", f"{path}/eviction", {"metadata": {"name": "sharer"}})
    denied(binder, "PATCH", f"{path}/status", {"status": {"phase": "Failed"}}, MERGE)
    denied(binder, "POST", PODS, reservation_pod("gpu-reservation-here-2"))
    for namespace in (SHARING, NAMESPACE, "kube-system"):
        denied(binder, "POST", f"{CORE}/namespaces/{namespace}/pods", reservation_pod("gpu-reservation-here-2"))


def test_t04_with_a_binding_the_binder_adds_only_the_gpus_of_the_pod(
    tokens: InstalledTokens, binder: Api, sharer: Json
) -> None:
    def binding(**metadata: object) -> Json:
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "sharer"} | metadata}
        return body | {"target": {"kind": "Node", "name": HERE}}

    path = f"{PODS}/sharer/binding"
    denied(binder, "POST", path, binding(annotations={"gpu-memory": "1"}))
    denied(binder, "POST", path, binding(annotations={names.SHARED_GPUS: "[]", "evil": "yes"}))
    denied(binder, "POST", path, binding(labels={names.GPU_GROUP_LABEL: GROUP}))
    written = {names.RECEIVED_RESOURCE_TYPE: names.FRACTION, names.SHARED_GPUS: "[]", names.POD_GROUP: "g"}
    allowed(binder, "POST", path, binding(annotations=written, uid=sharer["metadata"]["uid"]))
    assert tokens.api.get(f"{PODS}/sharer")["metadata"]["annotations"].items() >= written.items()


NOT_A_RESERVATION: dict[str, Change] = {
    "another name": lambda pod: pod["metadata"].update(name="evil"),
    "no group": lambda pod: pod["metadata"]["labels"].pop(names.GPU_GROUP_LABEL),
    "another app": lambda pod: pod["metadata"]["labels"].update(app="binder"),
    "a further label": lambda pod: pod["metadata"]["labels"].update(evil="yes"),
    "a finalizer": lambda pod: pod["metadata"].update(finalizers=["example.com/evil"]),
    "another account": lambda pod: pod["spec"].update(serviceAccountName="default"),
    "no GPU": lambda pod: pod["spec"]["containers"][0]["resources"]["limits"].pop("nvidia.com/gpu"),
    "two GPUs": lambda pod: pod["spec"]["containers"][0]["resources"]["limits"].update({"nvidia.com/gpu": "2"}),
    "a slice": lambda pod: pod["spec"]["containers"][0]["resources"]["limits"].update({"mig.das.com/1g.5gb": "1"}),
    "a second container": lambda pod: pod["spec"]["containers"].append({"name": "b", "image": "evil"}),
    "an init container": lambda pod: pod["spec"].update(initContainers=[{"name": "b", "image": "evil"}]),
    "a host path": lambda pod: pod["spec"].update(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "a secret": lambda pod: pod["spec"].update(volumes=[{"name": "v", "secret": {"secretName": "s"}}]),
    "the host's network": lambda pod: pod["spec"].update(hostNetwork=True),
    "the host's processes": lambda pod: pod["spec"].update(hostPID=True),
    "privileged": lambda pod: pod["spec"]["containers"][0].update(securityContext={"privileged": True}),
    "a capability": lambda pod: pod["spec"]["containers"][0].update(
        securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}
    ),
    "a port of the host": lambda pod: pod["spec"]["containers"][0].update(ports=[{"containerPort": 1, "hostPort": 1}]),
}


@pytest.mark.parametrize("case", NOT_A_RESERVATION)
def test_t04_what_the_binder_creates_is_a_reservation_pod(binder: Api, case: str) -> None:
    body = changed(reservation_pod("gpu-reservation-here-2"), NOT_A_RESERVATION[case])
    denied(binder, "POST", f"{RESERVED}?dryRun=All", body)


def test_t04_the_binder_keeps_the_sharers_on_its_reservation_pods(binder: Api) -> None:
    path = f"{RESERVED}/gpu-reservation-here-2"
    allowed(binder, "POST", RESERVED, reservation_pod("gpu-reservation-here-2"))
    sharers = {names.SHARERS: '{"u":{"namespace":"default","name":"a","milli":500}}', names.PLANNED_GPU: None}
    allowed(binder, "PATCH", path, {"metadata": {"annotations": sharers}}, MERGE)
    for body in (
        {"metadata": {"annotations": {names.RESERVED_GPU: "GPU-1"}}},
        {"metadata": {"annotations": {names.BIND_REQUEST: "uid"}}},
        {"metadata": {"annotations": {"cdi.k8s.io/mine": "nvidia.com/gpu=all"}}},
        {"metadata": {"labels": {"app": "evil"}}},
        {"spec": {"containers": [{"name": "resource-reservation", "image": "evil"}]}},
    ):
        denied(binder, "PATCH", path, body, STRATEGIC)
    denied(binder, "POST", f"{path}/exec?command=sh", None)
    denied(binder, "DELETE", RESERVED)
    allowed(binder, "DELETE", f"{path}?gracePeriodSeconds=0")


def test_t04_the_binder_creates_only_config_maps_of_shared_gpus_and_its_lease(
    tokens: InstalledTokens, binder: Api, sharer: Json
) -> None:
    data = {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "GPU_PORTION": "0.5", "RUNAI_NUM_OF_GPUS": "0.5"}
    name = f"sharer-{secrets.token_hex(4)}-shared-gpu-0"
    metadata = {"name": name, "ownerReferences": [owner(sharer)]}
    good: Json = {"metadata": metadata, "immutable": True, "data": data}
    wrong: dict[str, Change] = {
        "name": lambda body: body["metadata"].update(name="kube-root-ca.crt"),
        "ending": lambda body: body["metadata"].update(name="sharer-shared-gpu-x"),
        "no owner": lambda body: body["metadata"].pop("ownerReferences"),
        "another owner": lambda body: body["metadata"]["ownerReferences"][0].update(kind="Node"),
        "can be changed": lambda body: body.pop("immutable"),
        "another variable": lambda body: body["data"].update(LD_PRELOAD="/evil"),
        "a finalizer": lambda body: body["metadata"].update(finalizers=["example.com/evil"]),
    }
    for change in wrong.values():
        denied(binder, "POST", MAPS, changed(good, change))
    path = f"{MAPS}/{name}"
    allowed(binder, "POST", MAPS, good)
    allowed(
        binder,
        "POST",
        f"{MAPS}?dryRun=All",
        changed(good, lambda body: body["metadata"].update(name="x-shared-gpu-i12")),
    )
    allowed(binder, "GET", path)
    denied(binder, "PATCH", path, {"metadata": {"labels": {"evil": "yes"}}}, MERGE)
    allowed(binder, "DELETE", path)
    for other in ("theirs", "x-shared-gpu-theirs"):
        tokens.api.create(MAPS, {"metadata": {"name": other, "ownerReferences": [owner(sharer)]}})
        denied(binder, "DELETE", f"{MAPS}/{other}")
        tokens.api.delete(f"{MAPS}/{other}")
    denied(binder, "DELETE", MAPS)

    denied(binder, "POST", LEASES, {"metadata": {"name": "evil"}})
    allowed(binder, "POST", LEASES, {"metadata": {"name": names.BINDER_LEASE}})
    lease = binder.get(f"{LEASES}/{names.BINDER_LEASE}")
    allowed(binder, "PUT", f"{LEASES}/{names.BINDER_LEASE}", lease)
    denied(binder, "DELETE", f"{LEASES}/{names.BINDER_LEASE}")
    tokens.api.delete(f"{LEASES}/{names.BINDER_LEASE}")
    denied(binder, "GET", f"{LEASES.replace(SHARING, NAMESPACE)}/{names.SCHEDULER_LEASE}")


def test_t04_the_binder_changes_only_the_status_of_bind_requests(
    tokens: InstalledTokens, binder: Api, sharer: Json
) -> None:
    tokens.api.create(REQUESTS, bind_request(sharer))
    path = f"{REQUESTS}/sharer"
    allowed(binder, "GET", path)
    allowed(binder, "PATCH", f"{path}/status", {"status": {"phase": "Failed", "reason": "r"}}, MERGE)
    denied(binder, "PATCH", path, {"spec": {"selectedNode": "evil"}}, MERGE)
    denied(binder, "POST", REQUESTS, bind_request(sharer))
    denied(binder, "DELETE", path)
    tokens.api.delete(path)


def test_t04_the_binder_changes_no_settings_and_no_rights(binder: Api) -> None:
    denied(binder, "PATCH", "/apis/kai.scheduler/v1/configs/kai-config", {"spec": {"namespace": "evil"}}, MERGE)
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles/apportion-binder"
    denied(binder, "PATCH", roles, {"rules": []}, MERGE)
    denied(
        binder, "POST", f"{CORE}/namespaces/{RESERVATIONS}/serviceaccounts/kai-resource-reservation/token", {"spec": {}}
    )
    denied(binder, "PATCH", f"{CORE}/nodes/{HERE}", {"metadata": {"labels": {"evil": "yes"}}}, MERGE)
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "sharer"}}
    allowed(binder, "POST", f"{CORE}/namespaces/default/events?dryRun=All", event)


# The scheduler, under both of its accounts


def bind_request(pod: Json, **metadata: object) -> Json:
    meta = pod["metadata"]
    spec = {
        "podName": meta["name"],
        "podUID": meta["uid"],
        "selectedNode": HERE,
        "selectedGPUGroups": [GROUP],
        "selectedDevices": ["GPU-1"],
        "receivedResourceType": names.FRACTION,
        "receivedGPU": {"count": 1, "portion": "0.5", "memoryMiB": 100},
    }
    kind = {"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest"}
    return kind | {"metadata": {"name": meta["name"], "ownerReferences": [owner(pod)]} | metadata, "spec": spec}


def test_t04_the_scheduler_hands_a_pod_over_under_its_own_name_and_uid(scheduler: Api, sharer: Json) -> None:
    other = {"apiVersion": "v1", "kind": "Pod", "name": "sharer", "uid": "00000000-0000-0000-0000-000000000000"}
    for body in (
        bind_request(sharer, name="other"),
        bind_request(sharer, ownerReferences=[]),
        bind_request(sharer, ownerReferences=[other]),
        bind_request(sharer, ownerReferences=[owner(sharer), other]),
        bind_request(sharer, ownerReferences=[owner(sharer) | {"kind": "Job", "apiVersion": "batch/v1"}]),
        bind_request(sharer, finalizers=["example.com/evil"]),
        changed(bind_request(sharer), lambda body: body["spec"].pop("podUID")),
    ):
        denied(scheduler, "POST", REQUESTS, body)
    path = f"{REQUESTS}/sharer"
    allowed(scheduler, "POST", REQUESTS, bind_request(sharer) | {"status": {"phase": "Failed"}})
    assert scheduler.get(path).get("status", {}).get("phase", "") == ""
    denied(scheduler, "PATCH", path, {"spec": {"selectedNode": "evil"}}, MERGE)
    denied(scheduler, "PATCH", f"{path}/status", {"status": {"phase": "Failed"}}, MERGE)
    allowed(scheduler, "GET", "/apis/scheduling.run.ai/v1alpha2/bindrequests")
    allowed(scheduler, "DELETE", path)


def test_t04_the_scheduler_has_no_rights_on_shared_gpus(scheduler: Api) -> None:
    denied(scheduler, "POST", RESERVED, reservation_pod("gpu-reservation-here-2"))
    denied(scheduler, "PATCH", f"{PODS}/user-{HERE}", {"metadata": {"labels": {names.GPU_GROUP_LABEL: GROUP}}}, MERGE)
    denied(scheduler, "POST", MAPS, {"metadata": {"name": "x-shared-gpu-0"}})
    denied(scheduler, "POST", LEASES, {"metadata": {"name": names.BINDER_LEASE}})
    denied(scheduler, "PATCH", "/apis/kai.scheduler/v1/configs/kai-config", {"spec": {"namespace": "evil"}}, MERGE)


def test_r01_a_standby_reads_the_events_of_the_leader(scheduler: Api) -> None:
    allowed(scheduler, "GET", f"{CORE}/events?fieldSelector=source%3Ddas-scheduler")


# Reservation pods


def test_t04_a_reservation_token_changes_its_own_pod_only_and_there_the_gpu(
    tokens: InstalledTokens, reservation: Json
) -> None:
    tokens.api.create(RESERVED, reservation_pod("gpu-reservation-here-other"))
    own, other = f"{RESERVED}/gpu-reservation-here-1", f"{RESERVED}/gpu-reservation-here-other"
    bound = tokens.token(names.RESERVATION_SERVICE_ACCOUNT, reservation, RESERVATIONS)
    gpu = {"metadata": {"annotations": {names.RESERVED_GPU: "GPU-1"}}}
    denied(bound, "PATCH", other, gpu, MERGE)
    for body in (
        {"metadata": {"annotations": {names.SHARERS: "{}x"}}},
        {"metadata": {"annotations": {names.PLANNED_GPU: None}}},
        {"metadata": {"labels": {names.GPU_GROUP_LABEL: "evil"}}},
        {"metadata": {"finalizers": ["example.com/evil"]}},
        {"spec": {"containers": [{"name": "resource-reservation", "image": "evil"}]}},
    ):
        denied(bound, "PATCH", own, body, STRATEGIC)
    allowed(bound, "GET", own)
    allowed(bound, "PATCH", own, gpu, MERGE)
    assert tokens.api.get(own)["metadata"]["annotations"][names.RESERVED_GPU] == "GPU-1"

    for method, path, body in (
        ("DELETE", own, None),
        ("GET", RESERVED, None),
        ("POST", RESERVED, reservation_pod("gpu-reservation-here-2")),
        ("PATCH", f"{own}/status", {"status": {"phase": "Failed"}}),
        ("GET", f"{PODS}/user-{HERE}", None),
        ("PATCH", f"{PODS}/user-{HERE}", gpu),
        ("GET", f"{CORE}/namespaces/{RESERVATIONS}/secrets", None),
        ("GET", f"{CORE}/nodes", None),
        ("POST", MAPS, {"metadata": {"name": "x-shared-gpu-0"}}),
    ):
        denied(bound, method, path, body, MERGE if method == "PATCH" else "application/json")
    tokens.api.delete(f"{other}?gracePeriodSeconds=0")


@pytest.mark.usefixtures("reservation")
def test_t04_a_reservation_token_that_is_bound_to_no_pod_changes_none(tokens: InstalledTokens) -> None:
    unbound = tokens.token(names.RESERVATION_SERVICE_ACCOUNT, namespace=RESERVATIONS)
    gpu = {"metadata": {"annotations": {names.RESERVED_GPU: "GPU-1"}}}
    denied(unbound, "PATCH", f"{RESERVED}/gpu-reservation-here-1", gpu, MERGE)


def test_t04_a_token_of_an_earlier_pod_of_that_name_changes_nothing(tokens: InstalledTokens, reservation: Json) -> None:
    """Real API servers refuse the token of a pod that is gone; the policy compares the UID all the same."""
    old = tokens.token(names.RESERVATION_SERVICE_ACCOUNT, reservation, RESERVATIONS)
    path = f"{RESERVED}/gpu-reservation-here-1"
    tokens.api.delete(f"{path}?gracePeriodSeconds=0")
    tokens.api.create(RESERVED, reservation_pod("gpu-reservation-here-1"))
    gpu = {"metadata": {"annotations": {names.RESERVED_GPU: "GPU-1"}}}
    assert status(old, "PATCH", path, gpu, MERGE) in (DENIED, 401)
