"""Replicas of the webhook as processes beside a cluster, under their own service account, called through their Service.

On the real control plane, which has no node to run pods on, they join its network; their endpoints are
written by hand on either cluster, one EndpointSlice for each.
"""

from __future__ import annotations

import base64
import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from apportion import manifests
from apportion.apis import names
from apportion.cluster import service_account
from tests.admission.fallback.cluster import MEDIUM, SMALL, endpoint
from tests.environments.api import Api, RefusedError
from tests.environments.cluster import Cluster
from tests.environments.control_plane import ControlPlane
from tests.environments.sandbox_init import SERVICE_ADDRESS
from tests.environments.waiting import until

Json = dict[str, Any]
NAMESPACE = names.FALLBACK_NAMESPACE
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
CONFIGURATION = (
    f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{names.FALLBACK_WEBHOOK_CONFIGURATION}"
)
POOLS = {"small": SMALL, "medium": MEDIUM}
ROOT = Path(__file__).parents[3]


class Replicas:
    """All replicas on one cluster. `start` and `kill` them; one that died shows in `dead`."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        self._numbers = itertools.count(1)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        chosen = [entry for entry in manifests.load("fallback") if entry["kind"] != "Deployment"]
        cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(chosen))
        self._environment = os.environ | self._account()
        self._heart = Heart(cluster)

    def start(self, *options: str, lifetime: float = 6.0) -> str:
        """A replica that takes part as soon as it is ready; its name. One that dies before has none."""
        number = next(self._numbers)
        name = f"replica-{number}"
        real = isinstance(self.cluster, ControlPlane)
        listen = f"{SERVICE_ADDRESS}:{9000 + number}" if real else "127.0.0.1:0"
        prefix = ["setpriv", "--pdeathsig", "TERM", "--"]  # none may outlive the test run
        prefix += self.cluster.enter if isinstance(self.cluster, ControlPlane) else []
        command = [
            sys.executable,
            "-m",
            "tests.admission.fallback.killable_webhook",
            "--listen",
            listen,
            "--lifetime",
            str(lifetime),
        ]
        with self.log(name).open("wb") as output:
            process = subprocess.Popen(
                [*prefix, *command, *options], cwd=ROOT, env=self._environment, stdout=output, stderr=output
            )
        self._running[name] = process
        address = until(lambda: self._address(name), f"{name} is ready or dead", within=60)
        if address is not None and address != "dead":
            self.cluster.api.create(SLICES, endpoint(name, address))
        return name

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait(timeout=10)
        self.remove_endpoint(name)

    def dead(self) -> list[str]:
        return [name for name, process in self._running.items() if process.poll() is not None]

    def endpoint_of(self, name: str) -> tuple[str, int]:
        """Where a replica serves, inside the network of the cluster."""
        host, _, port = str(self._address(name)).rpartition(":")
        return host, int(port)

    @property
    def cluster_ca(self) -> Path:
        """Of the CA that signed the certificate which the API server presents to webhooks."""
        return self._folder / "account" / "ca.crt"

    def remove_endpoint(self, name: str) -> None:
        """Remove its endpoint, as the endpoints controller would."""
        self._running.pop(name)
        self.cluster.api.delete(f"{SLICES}/{name}")

    def names(self) -> list[str]:
        return list(self._running)

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def close(self) -> None:
        self._heart.stop()
        for name in self.names():
            self._running[name].terminate()
        for name in self.names():
            try:
                self._running[name].wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._running[name].kill()
            self.remove_endpoint(name)

    def _address(self, name: str) -> str | None:
        if self._running[name].poll() is not None:
            return "dead"
        lines = self.log(name).read_text().splitlines()
        return next((line.split()[1] for line in lines if line.startswith("ready ")), None)

    def _account(self) -> dict[str, str]:
        folder = self._folder / "account"
        folder.mkdir()
        until(lambda: self.cluster.api.exists(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/gpu-webhook"), "account")
        token = self.cluster.kubectl("create", "token", "gpu-webhook", "-n", NAMESPACE, "--duration=24h").strip()
        (folder / "token").write_text(token)
        if isinstance(self.cluster, ControlPlane):
            (folder / "ca.crt").write_bytes(self.cluster.credentials.ca.read_bytes())
            host, port = SERVICE_ADDRESS, "443"
        else:
            server = yaml.safe_load(self.cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
            (folder / "ca.crt").write_bytes(base64.b64decode(server["certificate-authority-data"]))
            address = urlsplit(server["server"])
            host, port = str(address.hostname), str(address.port)
        return {
            service_account.DIRECTORY_ENV: str(folder),
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
        }


class Heart:
    """The two nodes of the document, as objects with heartbeats."""

    def __init__(self, cluster: Cluster) -> None:
        self._kubeconfig = cluster.kubeconfig
        self._ended = threading.Event()
        for pool in POOLS:
            body = {"kind": "Node", "metadata": {"name": f"{pool}-1", "labels": {"node-pool": pool}}}
            cluster.api.create("/api/v1/nodes", {"apiVersion": "v1", **body})
        self._beat(cluster.api)
        for pool in POOLS:
            until(lambda pool=pool: not self._taints(cluster.api, f"{pool}-1"), f"node {pool}-1 takes pods")  # type: ignore[misc]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        api = Api(self._kubeconfig)
        while not self._ended.wait(5):
            try:
                self._beat(api)
            except (RefusedError, OSError):
                return

    def _beat(self, api: Api) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
        for pool, devices in POOLS.items():
            amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"} | {name: str(n) for name, n in devices.items()}
            status = {"conditions": [ready | {"lastTransitionTime": now}], "capacity": amounts, "allocatable": amounts}
            api.send("PATCH", f"/api/v1/nodes/{pool}-1/status", {"status": status}, "application/merge-patch+json")

    def _taints(self, api: Api, name: str) -> list[Json]:
        found: list[Json] = api.get(f"/api/v1/nodes/{name}")["spec"].get("taints") or []
        return found
