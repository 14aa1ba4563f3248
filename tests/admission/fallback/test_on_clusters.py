"""Twenty pods at once, replicas that come and go: the embedded cluster and a real control plane."""

from __future__ import annotations

import json
import os
import random
import secrets
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.admission.accounts import refusals, separate_cluster
from tests.admission.fallback.replicas import Replicas
from tests.environments.api import Api, RefusedError
from tests.environments.cluster import Cluster
from tests.environments.control_plane import ControlPlane
from tests.environments.waiting import until

pytestmark = [pytest.mark.kubectl]
__all__ = ["separate_cluster"]  # a fixture, found by name

Json = dict[str, Any]
FULL = os.environ.get("APPORTION_SOAK") == "1"
BURSTS = 100 if FULL else 1
DEATHS = {"embedded": 100 if FULL else 5, "real": 100 if FULL else 3}
EXPECTED = {"2g.20gb": 12, "1g.10gb": 8}


@pytest.fixture(scope="module")
def replicas(separate_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """The webhook's configuration, the nodes of the document, and no replica yet."""
    found = Replicas(separate_cluster, tmp_path_factory.mktemp("replicas"))
    yield found
    found.close()


@pytest.fixture
def team(replicas: Replicas) -> Iterator[Team]:
    found = Team(replicas)
    yield found
    found.close()


class Team:
    """One namespace's Deployment of pods that ask for 2g.20gb, and the replicas that decide about them."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.cluster = replicas.cluster
        self.name = f"team-{secrets.token_hex(3)}"
        self.pods_path = f"/api/v1/namespaces/{self.name}/pods"
        self.cluster.kubectl("create", "namespace", self.name)
        account = f"/api/v1/namespaces/{self.name}/serviceaccounts/default"
        until(lambda: self.cluster.api.exists(account), "the namespace's default account")

    def close(self) -> None:
        for name in self.replicas.names():
            self.replicas.kill(name)
        self.cluster.kubectl("delete", "namespace", self.name, "--wait=false")
        self.clear()

    def deploy(self, count: int) -> None:
        path = f"/apis/apps/v1/namespaces/{self.name}/deployments"
        self.cluster.api.create(path, deployment(count))

    def scale(self, count: int) -> None:
        path = f"/apis/apps/v1/namespaces/{self.name}/deployments/gpu-test"
        self.cluster.api.merge(path, {"spec": {"replicas": count}})

    def pods(self) -> list[Json]:
        return [pod for pod in self.cluster.api.items(self.pods_path) if "deletionTimestamp" not in pod["metadata"]]

    def await_pods(self, count: int) -> Counter[str]:
        until(lambda: self._keep_up(count), f"{count} pods", within=240, pause=0.1)
        return tally(self.pods())

    def clear(self) -> None:
        """Everything gone, pods at once: no kubelet is there to end them."""
        path = f"/apis/apps/v1/namespaces/{self.name}/deployments/gpu-test"
        self.cluster.api.delete(path)
        until(self._none_left, "the pods are gone", within=60, pause=0.1)

    def remove(self, pod: Json) -> None:
        self.cluster.api.delete(f"{self.pods_path}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})

    def _keep_up(self, count: int) -> bool:
        for name in self.replicas.dead():
            self.replicas.remove_endpoint(name)
            self.replicas.start()
        return len(self.pods()) == count

    def _none_left(self) -> bool:
        sets = self.cluster.api.items(f"/apis/apps/v1/namespaces/{self.name}/replicasets")
        for pod in self.cluster.api.items(self.pods_path):
            self.remove(pod)
        return not sets and not self.cluster.api.items(self.pods_path)


def deployment(count: int) -> Json:
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sleep", "infinity"],
        "resources": {"limits": {"nvidia.com/mig-2g.20gb": "1"}},
    }
    labels = {"app": "gpu-test"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "gpu-test"}, "spec": spec}


def tally(pods: list[Json]) -> Counter[str]:
    """How many pods have which device; annotation, limits and requests must tell the same."""
    counted: Counter[str] = Counter()
    for pod in pods:
        resources = pod["spec"]["containers"][0]["resources"]
        assert resources["limits"] == resources["requests"]
        ((name, count),) = resources["limits"].items()
        assert count == "1"
        profile = name.removeprefix("nvidia.com/mig-")
        annotation = (pod["metadata"].get("annotations") or {}).get("gpu-webhook.k8s.io/fallback")
        assert annotation == (None if profile == "2g.20gb" else "2g.20gb->1g.10gb")
        counted[profile] += 1
    return counted


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("count", [1, 2])
def test_f04_twenty_pods_of_a_deployment_split_twelve_to_eight(team: Team, count: int) -> None:
    for _ in range(count):
        team.replicas.start()
    for run in range(BURSTS):
        team.deploy(20)
        assert team.await_pods(20) == EXPECTED, f"run {run}"
        for pod in [pod for pod in team.pods() if tally([pod])["2g.20gb"]][:4]:
            team.remove(pod)
        assert team.await_pods(20) == EXPECTED, f"run {run}: the next four keep what they asked for"
        team.clear()
    assert refusals(team.cluster) == []


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_f04_a_replica_killed_at_any_call_changes_nothing(team: Team) -> None:
    seed = int(os.environ.get("APPORTION_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: rerun with APPORTION_SEED={seed}")
    dice = random.Random(seed)
    for run in range(DEATHS[team.cluster.kind]):
        fatal, after = dice.randint(1, 30), dice.random() < 0.5
        team.replicas.start("--die-at", str(fatal), *(["--after"] if after else []))
        if dice.random() < 0.5:
            team.replicas.start()
        team.deploy(20)
        found = team.await_pods(20)
        assert found == EXPECTED, f"run {run} of seed {seed}: killed {'after' if after else 'before'} call {fatal}"
        team.clear()
        for name in team.replicas.names():
            team.replicas.kill(name)


def test_f04_the_webhook_down_plain_pods_and_templates_pass_and_gpu_pods_are_refused(team: Team) -> None:
    team.cluster.kubectl("create", "deployment", "-n", team.name, "plain", "--image=busybox:1.36")
    until(lambda: len(team.pods()) == 1, "the plain pod")
    team.deploy(1)  # the Deployment itself is only looked at
    manifest = (
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"gpu"},"spec":{"containers":[{"name":"main",'
        '"image":"busybox:1.36","resources":{"limits":{"nvidia.com/mig-2g.20gb":"1"}}}]}}'
    )
    refusal = team.cluster.kubectl("create", "-n", team.name, "-f", "-", input=manifest, check=False)
    assert "failed calling webhook" in refusal
    team.replicas.start()
    until(lambda: len(team.pods()) == 2, "the Deployment's pod, once the webhook is back", within=120)
    team.cluster.kubectl("delete", "deployment", "-n", team.name, "plain")


def test_f04_d05_kubectl_diff_and_dry_run_promise_nothing(team: Team, tmp_path: Path) -> None:
    team.replicas.start()
    file = tmp_path / "deployment.json"
    pod = deployment(1)["spec"]["template"] | {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] = {"name": "one"}
    file.write_text(json.dumps(pod))
    for _ in range(3):
        team.cluster.kubectl("diff", "-n", team.name, "-f", str(file), check=False)
        team.cluster.kubectl("create", "-n", team.name, "-f", str(file), "--dry-run=server")
    team.deploy(20)
    assert team.await_pods(20) == EXPECTED


def test_t03_with_a_client_ca_the_api_server_is_answered_and_a_stranger_is_refused(team: Team) -> None:
    replicas = team.replicas
    guarded = replicas.start("--client-ca", str(replicas.cluster_ca))
    team.deploy(20)
    assert team.await_pods(20) == EXPECTED
    unguarded = replicas.start()
    assert "HTTP/1.1 404" in answer_to_a_stranger(replicas, unguarded)
    assert "HTTP" not in answer_to_a_stranger(replicas, guarded)


def answer_to_a_stranger(replicas: Replicas, name: str) -> str:
    host, port = replicas.endpoint_of(name)
    enter = replicas.cluster.enter if isinstance(replicas.cluster, ControlPlane) else []
    command = [*enter, sys.executable, "-c", STRANGER, host, str(port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout


STRANGER = """
import socket, ssl, sys
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
with context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2])))) as stranger:
    stranger.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    print(stranger.recv(100))
"""


def test_f03_certificates_made_anew_under_load_fail_no_request(team: Team) -> None:
    """The command itself, on either API server: the authority stays, or is replaced, while reviews come in."""
    for _ in range(2):
        team.replicas.start()
    load = Load(team)
    try:
        for options in ([], ["--new-ca", "--settle", "3"]):
            reached = load.done + 5
            command = [
                sys.executable,
                "-m",
                "apportion",
                "certs",
                "--kubeconfig",
                str(team.cluster.kubeconfig),
                *options,
            ]
            said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert said.returncode == 0, said.stderr
            until(lambda reached=reached: load.done >= reached or load.failures, "reviews go on")  # type: ignore[misc]
    finally:
        load.stop()
    assert load.failures == []


class Load:
    """Pods created without pause, as dry runs, from a thread of their own."""

    def __init__(self, team: Team) -> None:
        self.done = 0
        self.failures: list[str] = []
        self._ended = threading.Event()
        self._team = team
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        api = Api(self._team.cluster.kubeconfig)
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "load-"}}
        body |= {"spec": deployment(1)["spec"]["template"]["spec"]}
        while not self._ended.is_set():
            try:
                api.create(f"{self._team.pods_path}?dryRun=All", body)
                self.done += 1
            except (RefusedError, OSError) as error:
                self.failures.append(str(error))
