"""Pods that hold a slice on the real node, as tests speak of them."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

from tests.environments.installed import Installed
from tests.environments.waiting import NeverHappenedError, until

Json = dict[str, Any]

# Ends at SIGTERM, so that a test that deletes its pods does not wait for grace periods.
POLITE = "trap 'exit 0' TERM; env | grep NVIDIA_VISIBLE_DEVICES; while true; do sleep 0.2; done"
STUBBORN = "trap '' TERM; env | grep NVIDIA_VISIBLE_DEVICES; while true; do sleep 1; done"


class SlicePod:
    """One pod with a slice of its own."""

    def __init__(
        self, planes: Installed, namespace: str, name: str, *, profile: str = "1g.5gb", script: str = POLITE
    ) -> None:
        self._planes = planes
        self._namespace = namespace
        self.name = name
        container = {
            "name": "busy",
            "image": "busybox:1.36",
            "command": ["sh", "-c", script],
            "resources": {"limits": {f"nvidia.com/mig-{profile}": "1"}},
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        made = planes.cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
        self.uid: str = made["metadata"]["uid"]

    def get(self) -> Json:
        return self._planes.cluster.api.get(f"/api/v1/namespaces/{self._namespace}/pods/{self.name}")

    @property
    def status(self) -> Json:
        statuses = self.get()["status"].get("containerStatuses", ())
        return dict(statuses[0]) if statuses else {}

    def runs(self) -> bool:
        return "running" in self.status.get("state", {})

    def await_running(self, *, within: float = 30) -> None:
        try:
            until(self.runs, f"{self.name} runs", within=within, pause=0.1)
        except NeverHappenedError as error:
            error.add_note(self._events())
            raise

    def claim(self) -> Json:
        (claim,) = self._planes.claims(self.uid)
        return claim

    def mig_uuid(self) -> str:
        return str(self.claim()["status"]["migUUID"])

    def printed_uuid(self) -> str:
        """What the container itself has seen."""
        return until(self._printed, f"{self.name} prints its device")

    def processes(self) -> list[int]:
        return self._planes.node.processes_of(self.uid)

    def first_process(self) -> int:
        """The one that the container was started with; its children carry the script until they run their own."""
        return until(lambda: min(self._with_the_script()), f"the first process of {self.name}")

    def _with_the_script(self) -> list[int]:
        return [pid for pid in self.processes() if b"grep NVIDIA" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def crash(self) -> None:
        os.kill(self.first_process(), signal.SIGKILL)

    def delete(self, *options: str) -> None:
        self._planes.kubectl("delete", "pod", "-n", self._namespace, self.name, "--wait=false", *options)

    def await_gone(self, *, within: float = 10) -> None:
        until(lambda: not self._planes.claims(self.uid), f"the claim of {self.name} goes", within=within)

    def _printed(self) -> str:
        log = self._planes.kubectl("logs", "-n", self._namespace, self.name)
        found = re.search(r"NVIDIA_VISIBLE_DEVICES=(MIG-\S+)", log)
        return found[1] if found else ""

    def _events(self) -> str:
        return self._planes.kubectl("events", "-n", self._namespace, "--for", f"pod/{self.name}")
