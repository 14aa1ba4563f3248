"""An embedded cluster that serves slices: its planes, their processes, and what is left on its nodes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.environments.embedded import Embedded
from tests.environments.waiting import until

DAS = "/api/v1/namespaces/das-operator/pods"
CLAIMS = "/apis/inference.redhat.com/v1alpha1/namespaces/das-operator/allocationclaims"
PLANES = {"das-operator-webhook", "das-scheduler", "das-operator-daemonset"}

Json = dict[str, Any]


class ServingCluster(Embedded):
    """`apportion up` with all planes, and its processes and files, for tests that kill planes."""

    def __init__(self, folder: Path, *options: str, patience: float = 60) -> None:
        super().__init__(folder, *(options or ("--nodes", "1", "--restart-backoff", "0.2")))
        until(lambda: self.ready_planes() >= PLANES, "every plane is ready", within=patience)
        (state,) = folder.glob("state/apportion/*.json")
        self.nodes_dir = Path(json.loads(state.read_text())["root"])

    def plane_pods(self) -> list[Json]:
        return self.api.items(DAS)

    def ready_planes(self) -> set[str]:
        return {
            pod["metadata"]["labels"]["app.kubernetes.io/name"]
            for pod in self.plane_pods()
            if {"type": "Ready", "status": "True"}.items()
            <= next((c for c in pod["status"].get("conditions", []) if c["type"] == "Ready"), {}).items()
        }

    def claims(self) -> list[Json]:
        return self.api.items(CLAIMS)

    def plane_processes(self) -> list[tuple[str, int]]:
        """Name of the plane and process id, found as the kernel would tell: by the pod's cgroup."""
        return [
            (pod["metadata"]["labels"]["app.kubernetes.io/name"], int(pid))
            for pod in self.plane_pods()
            for procs in self.nodes_dir.glob(f"*/sys/fs/cgroup/kubepods/pod{pod['metadata']['uid']}/*/cgroup.procs")
            for pid in procs.read_text().split()
        ]

    def kill(self, app: str) -> int:
        """SIGKILL every process of one plane."""
        found = [pid for name, pid in self.plane_processes() if name == app]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return len(found)

    def left_on_nodes(self) -> list[str]:
        """CDI files and slices that exist on the nodes."""
        files = [path.name for path in self.nodes_dir.glob("*/var/run/cdi/*")]
        slices = []
        for state in self.nodes_dir.glob("*/var/lib/apportion/emulated-gpus.json"):
            slices += [one["uuid"] for gpu in json.loads(state.read_text())["gpus"] for one in gpu["slices"]]
        return files + slices
