"""Our planes on a real node, installed with the shipped manifests, and ways to kill them."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.environments import images
from tests.environments.api import Api
from tests.environments.binaries import ROOT
from tests.environments.node import RealNode
from tests.environments.waiting import NeverHappenedError, until

NAMESPACE = "das-operator"
WEBHOOK, SCHEDULER, AGENT, OPERATOR = "das-operator-webhook", "das-scheduler", "das-operator-daemonset", "das-operator"
PLANES = (WEBHOOK, SCHEDULER, AGENT, OPERATOR)
CLAIMS = f"/apis/inference.redhat.com/v1alpha1/namespaces/{NAMESPACE}/allocationclaims"
SWITCHES = f"/apis/inference.redhat.com/v1alpha1/namespaces/{NAMESPACE}/dasoperators/cluster"
DEFAULT_QUEUE = "/apis/scheduling.run.ai/v2/queues/default-queue"
MANIFESTS = ROOT / "src" / "apportion" / "manifests"

Json = dict[str, Any]


class Installed:
    """Every plane is ready when constructed."""

    def __init__(self, node: RealNode) -> None:
        self.node = node
        self.cluster = node.plane
        node.import_images(images.apportion())
        self.cluster.kubectl("apply", "--server-side", "-f", str(MANIFESTS))
        self.await_ready()
        until(lambda: self.cluster.api.exists(SWITCHES), "the operator makes its settings object")
        until(lambda: self.cluster.api.exists(DEFAULT_QUEUE), "the operator makes the default queues")

    @property
    def api(self) -> Api:
        return self.cluster.api

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        return self.cluster.kubectl(*args, input=input, check=check)

    def await_ready(self, *apps: str, within: float = 90) -> None:
        for app in apps or PLANES:
            try:
                until(partial(self._all_ready, app), f"{app} is ready", within=within, pause=0.2)
            except NeverHappenedError as error:
                error.add_note(self.kubectl("get", "pods", "-n", NAMESPACE, check=False))
                error.add_note(self.logs(app))
                raise

    def logs(self, app: str) -> str:
        selector = f"app.kubernetes.io/name={app}"
        return self.kubectl("logs", "-n", NAMESPACE, "-l", selector, "--tail=20", "--prefix", check=False)

    def pods(self, app: str) -> list[Json]:
        selector = f"labelSelector=app.kubernetes.io/name%3D{app}"
        return self.cluster.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")

    def processes(self, app: str) -> list[int]:
        """Ids of a plane's own processes; the pause process of its pod is not one."""
        found = [pid for pod in self.pods(app) for pid in self.node.processes_of(pod["metadata"]["uid"])]
        return [pid for pid in found if b"apportion" in _command(pid)]

    def kill(self, app: str) -> None:
        """SIGKILL, as a crash or the kernel's OOM killer would; the kubelet starts it again."""
        processes = self.processes(app)
        assert processes, f"{app} does not run"
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def claims(self, pod_uid: str | None = None) -> list[Json]:
        claims = self.cluster.api.items(CLAIMS)
        return [claim for claim in claims if pod_uid in (None, claim["spec"]["podRef"]["uid"])]

    def cdi_files(self) -> list[str]:
        return sorted(path.name for path in self.node.path("/run/cdi").glob("*.json"))

    def slices(self) -> list[Json]:
        """What exists on the node's emulated GPUs."""
        state = self.node.path("/var/lib/apportion/emulated-gpus.json")
        if not state.exists():
            return []
        return [one for gpu in json.loads(state.read_text())["gpus"] for one in gpu["slices"]]

    def left_on_nodes(self) -> list[str]:
        return [*self.cdi_files(), *(one["uuid"] for one in self.slices())]

    def _all_ready(self, app: str) -> bool:
        pods = self.pods(app)
        return bool(pods) and all(_ready(pod) for pod in pods)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended since it was listed
        return b""


def _ready(pod: Json) -> bool:
    conditions = {entry["type"]: entry["status"] for entry in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
