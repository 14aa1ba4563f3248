"""How containers of a real kubelet get their slices, and that every way to end releases everything."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import pods
from tests.environments.installed import Installed
from tests.environments.waiting import until
from tests.real.slice_pods import POLITE, SlicePod

pytestmark = pytest.mark.real

Json = dict[str, Any]
SHOW = "env | grep VISIBLE_DEVICES"


def test_s07_two_profiles_in_one_container_give_one_list_in_claim_order(real_planes: Installed, namespace: str) -> None:
    for number in range(3):  # the kubelet's order of calls and names is random
        pod = create(real_planes, namespace, f"two-{number}", [container("main", POLITE, "1g.5gb", "2g.10gb")])
        assert devices(real_planes, namespace, pod, "main") == in_claim_order(real_planes, pod)
        delete(real_planes, namespace, pod)


def test_s04_s07_an_init_container_shares_the_slice_of_the_later_container(
    real_planes: Installed, namespace: str
) -> None:
    first = container("first", SHOW, "1g.5gb")
    pod = create(real_planes, namespace, "p", [container("main", POLITE, "1g.5gb", "2g.10gb")], init=[first])
    listed = devices(real_planes, namespace, pod, "main")
    assert listed == in_claim_order(real_planes, pod)
    assert devices(real_planes, namespace, pod, "first") == listed
    assert len(real_planes.slices()) == len(real_planes.claims(pod["metadata"]["uid"])) == 2
    delete(real_planes, namespace, pod)


def test_s04_profiles_that_differ_stand_side_by_side(real_planes: Installed, namespace: str) -> None:
    first = container("first", SHOW, "2g.10gb")
    pod = create(real_planes, namespace, "p", [container("main", POLITE, "1g.5gb")], init=[first])
    uid = pod["metadata"]["uid"]
    (early,), (late,) = (devices(real_planes, namespace, pod, name) for name in ("first", "main"))
    owners = {claim["status"]["migUUID"]: claim["metadata"]["name"] for claim in real_planes.claims(uid)}
    assert owners == {early: f"{uid}-first-0", late: f"{uid}-main-0"}
    delete(real_planes, namespace, pod)


def completed(planes: Installed, namespace: str) -> str:
    pod = create(planes, namespace, "p", [container("main", SHOW, "1g.5gb")], restartPolicy="Never")
    until(lambda: phase(planes, namespace, "p") == "Succeeded", "it completes", within=60)
    return str(pod["metadata"]["uid"])


def failed(planes: Installed, namespace: str) -> str:
    pod = create(planes, namespace, "p", [container("main", f"{SHOW}; exit 3", "1g.5gb")], restartPolicy="Never")
    until(lambda: phase(planes, namespace, "p") == "Failed", "it fails", within=60)
    return str(pod["metadata"]["uid"])


def evicted(planes: Installed, namespace: str) -> str:
    pod = SlicePod(planes, namespace, "p")
    pod.await_running()
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": namespace}}
    planes.api.create(f"/api/v1/namespaces/{namespace}/pods/p/eviction", body)
    until(lambda: not pod.processes(), "its processes end", within=60)
    return pod.uid


def deleted_while_it_starts(planes: Installed, namespace: str) -> str:
    pod = SlicePod(planes, namespace, "p")
    until(lambda: planes.claims(pod.uid), "its claim is made")
    pod.delete()
    until(lambda: not planes.api.exists(f"/api/v1/namespaces/{namespace}/pods/p"), "it goes", within=60)
    return pod.uid


@pytest.mark.parametrize("end", [completed, failed, evicted, deleted_while_it_starts])
def test_s08_every_end_frees_claim_slice_and_cdi_file_within_ten_seconds(
    real_planes: Installed, namespace: str, end: Callable[[Installed, str], str]
) -> None:
    before = real_planes.left_on_nodes()
    uid = end(real_planes, namespace)
    until(lambda: not real_planes.claims(uid), "its claims go", within=10)
    assert real_planes.left_on_nodes() == before


def test_s08_a_container_that_ended_for_good_frees_its_slice_while_its_pod_runs_on(
    real_planes: Installed, namespace: str
) -> None:
    once, on = container("once", SHOW, "1g.5gb"), container("on", POLITE, "2g.10gb")
    pod = create(real_planes, namespace, "p", [once, on], restartPolicy="Never")
    uid = pod["metadata"]["uid"]
    devices(real_planes, namespace, pod, "on")
    until(lambda: profiles(real_planes, uid) == ["2g.10gb"], "the slice of the ended container is free", within=30)
    assert phase(real_planes, namespace, "p") == "Running"
    delete(real_planes, namespace, pod)


def container(name: str, script: str, *asked: str) -> Json:
    return pods.container(name, mig=dict.fromkeys(asked, 1), command=["sh", "-c", script])


def create(
    planes: Installed, namespace: str, name: str, containers: list[Json], *, init: list[Json] | None = None, **spec: str
) -> Json:
    body = pods.pod(name, namespace=namespace, containers=containers, init=init or (), **spec)
    return planes.api.create(f"/api/v1/namespaces/{namespace}/pods", body)


def delete(planes: Installed, namespace: str, pod: Json) -> None:
    planes.kubectl("delete", "pod", "-n", namespace, pod["metadata"]["name"], "--wait=false")
    until(lambda: not planes.claims(pod["metadata"]["uid"]), "its claims go", within=60)


def phase(planes: Installed, namespace: str, name: str) -> str:
    return str(planes.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"].get("phase"))


def profiles(planes: Installed, uid: str) -> list[str]:
    return sorted(claim["spec"]["profile"] for claim in planes.claims(uid))


def in_claim_order(planes: Installed, pod: Json) -> list[str]:
    claims = sorted(planes.claims(pod["metadata"]["uid"]), key=lambda claim: claim["metadata"]["name"])
    return [claim["status"]["migUUID"] for claim in claims]


def devices(planes: Installed, namespace: str, pod: Json, name: str) -> list[str]:
    """What a container has printed of its environment."""

    def printed() -> re.Match[str] | None:
        log = planes.kubectl("logs", "-n", namespace, pod["metadata"]["name"], "-c", name, check=False)
        return re.search(r"NVIDIA_VISIBLE_DEVICES=(MIG-\S+)", log)

    found = until(printed, f"{name} prints its devices", within=60)
    assert found is not None
    return found[1].split(",")
