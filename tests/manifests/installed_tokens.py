"""A cluster with our manifests and no pods of them, and the API as a holder of a component's token sees it.

Two nodes, `here` and `there`, each with an agent's pod, a NodeAccelerator, a pod with a slice, and its claim.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import yaml

from apportion import manifests
from apportion.apis import names
from tests.environments.api import Api, RefusedError
from tests.environments.cluster import Cluster
from tests.environments.waiting import until

Json = dict[str, Any]

NAMESPACE = names.DAS_NAMESPACE
CORE, APPS = "/api/v1", f"/apis/apps/v1/namespaces/{NAMESPACE}"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
OURS = f"/apis/inference.redhat.com/v1alpha1/namespaces/{NAMESPACE}"
HERE, THERE = "here", "there"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
DENIED = 403


class InstalledTokens:
    """The cluster is the fixture's; everything in it is made here."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self._folder = folder
        self._apply([*installation(), *without_deployments("fallback")])
        kinds = [f"crd/{entry['metadata']['name']}" for entry in installation("CustomResourceDefinition")]
        cluster.kubectl("wait", "--for=condition=Established", *kinds)
        self._apply(without_deployments("sharing"))
        for node in (HERE, THERE):
            self._make_node(node)
        self.agent_here = self.token("das-daemonset", self._agent_pod(HERE))
        self.agent_there = self.token("das-daemonset", self._agent_pod(THERE))
        self._await_policies()

    def _apply(self, objects: list[Json]) -> None:
        self.cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(objects))

    def token(self, account: str, pod: Json | None = None, namespace: str = NAMESPACE) -> Api:
        """The API as one of our accounts; `pod` binds the token to a pod, and so to its node."""
        spec: Json = {}
        if pod is not None:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        path = f"{CORE}/namespaces/{namespace}/serviceaccounts/{account}/token"
        made = self.api.create(path, {"spec": spec})
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        for user in config["users"]:
            user["user"] = {"token": made["status"]["token"]}
        file = self._folder / f"{account}-{len(list(self._folder.iterdir()))}"
        file.write_text(json.dumps(config))
        return Api(file)

    @property
    def ca_bundle(self) -> str:
        """A certificate of an authority, in base64."""
        (cluster,) = yaml.safe_load(self.cluster.kubeconfig.read_text())["clusters"]
        file = cluster["cluster"].get("certificate-authority")
        data: str = base64.b64encode(Path(file).read_bytes()).decode() if file else ""
        return data or cluster["cluster"]["certificate-authority-data"]

    def _make_node(self, node: str) -> None:
        labels = {"nvidia.com/mig.capable": "true"}
        self.api.create(f"{CORE}/nodes", {"metadata": {"name": node, "labels": labels}})
        self.api.create(f"{OURS}/nodeaccelerators", accelerator({"name": node}))
        claimed = self.pod(f"user-{node}", node, "default")
        self.api.create(f"{OURS}/allocationclaims", claim(node, claimed))

    def _agent_pod(self, node: str) -> Json:
        return self.pod(f"agent-{node}", node, NAMESPACE, "das-daemonset")

    def pod(self, name: str, node: str, namespace: str, account: str = "default") -> Json:
        container = {"name": "main", "image": "example.com/nothing"}
        spec = {"nodeName": node, "serviceAccountName": account, "containers": [container]}
        body = {"metadata": {"name": name}, "spec": spec | {"automountServiceAccountToken": False}}
        return self.api.create(f"{CORE}/namespaces/{namespace}/pods", body)

    def _await_policies(self) -> None:
        """The API server learns of new policies a moment after they are stored."""
        path = f"{OURS}/allocationclaims/claim-{THERE}?dryRun=All"
        until(lambda: status(self.agent_here, "DELETE", path) == DENIED, "policies are in force")
        namespace = names.RESERVATION_NAMESPACE
        self.pod("probe", HERE, namespace)
        unbound = self.token(names.RESERVATION_SERVICE_ACCOUNT, namespace=namespace)
        probe = f"{CORE}/namespaces/{namespace}/pods/probe"
        body = {"metadata": {"annotations": {names.RESERVED_GPU: "GPU-1"}}}

        def refused() -> bool:
            return (
                "the pod that its token is bound to" in answer(unbound, "PATCH", f"{probe}?dryRun=All", body, MERGE)[1]
            )

        until(refused, "the policies of sharing are in force")
        self.api.delete(f"{probe}?gracePeriodSeconds=0")


def installation(*kinds: str) -> list[Json]:
    """The manifests (of these kinds), with no pod of them."""
    objects = [entry for entry in manifests.load() if not kinds or entry["kind"] in kinds]
    for entry in objects:
        if entry["kind"] == "Deployment":
            entry["spec"]["replicas"] = 0
        if entry["kind"] == "DaemonSet":
            entry["spec"]["template"]["spec"]["nodeSelector"] = {"example.com/nowhere": "true"}
    return objects


def without_deployments(part: str) -> list[Json]:
    return [entry for entry in manifests.load(part) if entry["kind"] != "Deployment"]


def accelerator(metadata: Json) -> Json:
    kind = {"apiVersion": "inference.redhat.com/v1alpha1", "kind": "NodeAccelerator"}
    return kind | {"metadata": metadata, "spec": {}}


def claim(node: str, pod: Json, name: str = "") -> Json:
    meta = pod["metadata"]
    reference = {"kind": "Pod", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
    spec = {"profile": "1g.5gb", "gpuUUID": f"GPU-{node}", "migPlacement": {"start": 0, "size": 1}}
    metadata = {"name": name or f"claim-{node}", "finalizers": [names.SLICE_FINALIZER]}
    return {
        "apiVersion": "inference.redhat.com/v1alpha1",
        "kind": "AllocationClaim",
        "metadata": metadata,
        "spec": spec | {"nodename": node, "podRef": reference, "containers": ["main"]},
    }


def status(api: Api, method: str, path: str, body: Any = None, kind: str = "application/json") -> int:
    """The status code of the answer; 200 stands for every success."""
    return answer(api, method, path, body, kind)[0]


def answer(api: Api, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, str]:
    try:
        return 200, api.send(method, path, body, kind)
    except RefusedError as error:
        return error.code, error.body
