"""`apportion reserve` as a process of its own, for a pod on an embedded API server."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from apportion.apis import kinds, names
from apportion.cluster import service_account
from pocketkube.api.access.tokens import Bound
from tests.pocketkube.cluster import RunningCluster, pod

Json = dict[str, Any]
ACCOUNT = names.RESERVATION_SERVICE_ACCOUNT
POD = "gpu-reservation-node-1-0123456789"
ROLES = kinds.Kind("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = kinds.Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
RIGHTS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}


class Reservation:
    """One reservation pod. Nothing runs it: its process is started by the test."""

    def __init__(self, cluster: RunningCluster, folder: Path, uid: str) -> None:
        self.cluster = cluster
        self.folder = folder
        self._uid = uid
        self.write_token()
        (folder / "ca.crt").write_bytes(_authority(cluster))

    def write_token(self, text: str = "") -> None:
        tokens = self.cluster.pocketkube.server.tokens
        bound = Bound("Pod", POD, self._uid)
        issued = tokens.issue(names.RESERVATION_NAMESPACE, ACCOUNT, bound=bound)
        (self.folder / "token").write_text(text or issued.token)

    async def gpu(self) -> str | None:
        found = await self.cluster.get(kinds.PODS, POD)
        return (found["metadata"].get("annotations") or {}).get(names.RESERVED_GPU)

    @asynccontextmanager
    async def running(self, **variables: str) -> AsyncIterator[Process]:
        address = self.cluster.pocketkube.url.removeprefix("https://").split(":")
        environment = {
            "PATH": os.environ["PATH"],
            service_account.DIRECTORY_ENV: str(self.folder),
            "KUBERNETES_SERVICE_HOST": address[0],
            "KUBERNETES_SERVICE_PORT": address[1],
            "POD_NAME": POD,
            "POD_NAMESPACE": names.RESERVATION_NAMESPACE,
            **variables,
        }
        started = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "apportion", "reserve", env=environment, stderr=asyncio.subprocess.PIPE
        )
        process = Process(started)
        try:
            yield process
        finally:
            await process.stop(signal.SIGKILL)
            await process.rest()


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        """The next line of its log, without the time."""
        assert self._process.stderr is not None
        async with asyncio.timeout(20):
            line = (await self._process.stderr.readline()).decode()
        return line.partition(" ")[2].rstrip("\n")

    async def stop(self, how: signal.Signals) -> int:
        if self._process.returncode is None:
            self._process.send_signal(how)
        async with asyncio.timeout(5):
            return await self._process.wait()

    async def rest(self) -> None:
        """Its log to the end: its child has ended, too."""
        assert self._process.stderr is not None
        async with asyncio.timeout(5):
            await self._process.stderr.read()

    def memory(self, field: str) -> int:
        """KiB, as the kernel counts them."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


async def install(cluster: RunningCluster, *, rights: bool = True) -> str:
    """Namespace, service account, role and pod; gives the uid of the pod."""
    await cluster.create(kinds.NAMESPACES, {"metadata": {"name": names.RESERVATION_NAMESPACE}})
    cluster.namespace = names.RESERVATION_NAMESPACE
    await cluster.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": ACCOUNT}})
    if rights:
        await grant(cluster)
    made = await cluster.create(kinds.PODS, pod(POD, serviceAccountName=ACCOUNT))
    return str(made["metadata"]["uid"])


async def grant(cluster: RunningCluster) -> None:
    await cluster.create(ROLES, {"metadata": {"name": ACCOUNT}, "rules": [RIGHTS]})
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": names.RESERVATION_NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
    await cluster.create(ROLE_BINDINGS, {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]})


def _authority(cluster: RunningCluster) -> bytes:
    config = yaml.safe_load(cluster.pocketkube.kubeconfig.read_text())
    return base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
