"""Watches a cluster from outside and records every state that must never be.

It reads the Kubernetes API and the nodes' files as they are and imports nothing of what it judges. Two kinds of
findings: from the stream of changes of claims and pods, which is a history in order; and from audits, which read the
pods, then everything else, then the pods again, and judge only containers that ran during the whole audit.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.environments.api import Api, RefusedError

Json = dict[str, Any]
CLAIMS = "/apis/inference.redhat.com/v1alpha1/namespaces/das-operator/allocationclaims"
PODS = "/api/v1/pods"
IN_USE = ("processing", "inUse")
SLICE = "mig.das.com/"
DEVICES = re.compile(r"^NVIDIA_VISIBLE_DEVICES=(\S+)$", re.MULTILINE)
AUDIT_PAUSE = 0.5


class Observer:
    """`violations` is empty as long as all is well; `counts` says how much was looked at."""

    def __init__(self, kubeconfig: Path, nodes_dir: Path) -> None:
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self._kubeconfig = kubeconfig
        self._nodes_dir = nodes_dir
        self._claims: dict[str, Json] = {}
        self._node_of: dict[str, str] = {}
        self._devices: dict[str, list[str]] = {}  # by container id, as its log says
        self._orphaned: set[str] = set()  # pods whose Node object was deleted under them
        self._stopping = threading.Event()

    @contextmanager
    def observing(self) -> Iterator[None]:
        with ThreadPoolExecutor() as threads:
            work = [
                threads.submit(self._follow, CLAIMS, self._claims_listed, self._claim_changed),
                threads.submit(self._follow, PODS, self._pods_listed, self._pod_changed),
                threads.submit(self._audit_again_and_again),
            ]
            try:
                yield
            finally:
                self._stopping.set()
        for each in work:
            each.result()

    def node_deleted(self, node: str) -> None:
        """The claims on a node end with its Node object, though its containers may still run."""
        self._orphaned |= {uid for uid, bound in self._node_of.items() if bound == node}

    # The history of changes

    def _follow(self, path: str, listed: Callable[[list[Json]], None], changed: Callable[[str, Json], None]) -> None:
        follow(Api(self._kubeconfig), path, self._stopping, listed, changed)

    def _claims_listed(self, claims: list[Json]) -> None:
        self._claims.clear()
        for claim in claims:
            self._claim_changed("ADDED", claim)

    def _claim_changed(self, event: str, claim: Json) -> None:
        self.counts["claim changes"] += 1
        name = claim["metadata"]["name"]
        self._claims.pop(name, None)
        if event == "DELETED":
            return
        if _in_use(claim):
            for other in self._claims.values():
                if _in_use(other) and _overlap(claim["spec"], other["spec"]):
                    self._violated(f"claims {name} and {other['metadata']['name']} overlap and are both in use")
        self._claims[name] = claim

    def _pods_listed(self, pods: list[Json]) -> None:
        for pod in pods:
            self._pod_changed("ADDED", pod)

    def _pod_changed(self, event: str, pod: Json) -> None:
        self.counts["pod changes"] += 1
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        before = self._node_of.get(uid, "")
        if before and node != before:
            self._violated(f"pod {pod['metadata']['name']} was bound to {before} and then to {node}")
        if event != "DELETED" and node and not before:
            self.counts["pods bound"] += 1
            self._node_of[uid] = node
        if pod.get("status", {}).get("phase") == "Failed" and pod["status"].get("reason"):
            self.counts[f"pods failed: {pod['status']['reason']}"] += event != "DELETED"

    # Audits

    def _audit_again_and_again(self) -> None:
        api = Api(self._kubeconfig)
        while not self._stopping.wait(AUDIT_PAUSE):
            self._audit(api)

    def _audit(self, api: Api) -> None:
        before = _running(api.items(PODS))
        devices = {container: self._devices_of(api, container, pod) for container, pod in before.items()}
        claims: dict[str, list[Json]] = {}
        for claim in api.items(CLAIMS):
            claims.setdefault(claim["spec"]["podRef"]["uid"], []).append(claim)
        hardware = _devices_on(self._nodes_dir)
        after = _running(api.items(PODS))
        self.counts["audits"] += 1
        holders: dict[str, str] = {}
        for container in before.keys() & after.keys():
            pod, held = after[container], devices[container]
            if held is None:  # it has not printed its devices yet
                continue
            self.counts["containers audited"] += 1
            self._judge(pod, held, claims.get(pod["metadata"]["uid"], []), hardware)
            for device in held:
                other = holders.setdefault(device, pod["metadata"]["name"])
                if other != pod["metadata"]["name"]:
                    self._violated(f"pods {other} and {pod['metadata']['name']} hold the device {device}")

    def _judge(self, pod: Json, held: list[str], claims: list[Json], hardware: set[str]) -> None:
        name = pod["metadata"]["name"]
        for device in held:
            if device not in hardware:
                self._violated(f"pod {name} runs with {device}, which does not exist on any node")
        wanted = _slices(pod)
        if not wanted or pod["metadata"]["uid"] in self._orphaned:
            return
        if len(claims) != wanted:
            self._violated(f"pod {name} runs {wanted} slices with {len(claims)} claims")
        made = [claim.get("status", {}).get("migUUID") for claim in claims]
        if sorted(held) != sorted(map(str, made)):
            self._violated(f"pod {name} holds {held}, and its claims have {made}")

    def _devices_of(self, api: Api, container: str, pod: Json) -> list[str] | None:
        if container not in self._devices:
            meta = pod["metadata"]
            try:
                log = api.send("GET", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log")
            except RefusedError:  # it is gone since
                return None
            printed = DEVICES.findall(log)
            if not printed:
                return None
            self._devices[container] = printed[-1].split(",")
        return self._devices[container]

    def _violated(self, text: str) -> None:
        self.violations.append(f"{time.strftime('%H:%M:%S')} {text}")


def follow(
    api: Api,
    path: str,
    stopping: threading.Event,
    listed: Callable[[list[Json]], None],
    changed: Callable[[str, Json], None],
) -> None:
    """All changes of a collection in order, and the whole of it whenever a watch has ended."""
    while not stopping.is_set():
        listing = api.get(path)
        listed(listing["items"])
        for event in api.watch(path, listing["metadata"]["resourceVersion"], seconds=2):
            if event["type"] in ("ERROR", "BOOKMARK"):
                break
            changed(event["type"], event["object"])


def _in_use(claim: Json) -> bool:
    return claim.get("status", {}).get("state") in IN_USE


def _overlap(one: Json, other: Json) -> bool:
    if one["gpuUUID"] != other["gpuUUID"]:
        return False
    a, b = one["migPlacement"], other["migPlacement"]
    return bool(a["start"] < b["start"] + b["size"] and b["start"] < a["start"] + a["size"])


def _running(pods: list[Json]) -> dict[str, Json]:
    """The GPU pods by the id of their running container. One that is being deleted may have ended already."""
    found = {}
    for pod in pods:
        if pod["metadata"].get("labels", {}).get("storm") != "yes" or "deletionTimestamp" in pod["metadata"]:
            continue
        for status in pod["status"].get("containerStatuses", ()):
            if "running" in status["state"]:
                found[status["containerID"]] = pod
    return found


def _slices(pod: Json) -> int:
    limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
    return sum(int(amount) for name, amount in limits.items() if name.startswith(SLICE))


def _devices_on(nodes_dir: Path) -> set[str]:
    return {device for _, devices in hardware(nodes_dir) for device in devices}


def hardware(nodes_dir: Path) -> Iterator[tuple[str, list[str]]]:
    """Each emulated GPU of each node: its own uuid, and those of itself and everything that it was cut into."""
    for path in nodes_dir.glob("*/var/lib/apportion/emulated-gpus.json"):
        for gpu in json.loads(path.read_text())["gpus"]:
            pieces = [*gpu["slices"], *(gpu.get("fixed") or ())]
            yield gpu["uuid"], [gpu["uuid"], *(piece["uuid"] for piece in pieces)]
