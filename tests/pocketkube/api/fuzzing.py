"""Random requests that are almost right: good objects with one thing wrong, or plain noise."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from apportion.cluster.transport import HttpRequest
from pocketkube.api.server import ApiServer
from tests.pocketkube.api.direct_requests import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

JSON = dict[str, Any]
_CONTAINER: JSON = {
    "name": "c",
    "image": "i",
    "resources": {"limits": {"cpu": "1"}},
    "env": [{"name": "A", "value": "b"}],
    "ports": [{"containerPort": 80}],
}
_TEMPLATE: JSON = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [_CONTAINER]}}
_WORKLOAD: JSON = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}
_SCHEMA: JSON = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "default": 1},
                "l": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            },
        }
    },
}
_VERSION: JSON = {
    "name": "v1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": _SCHEMA},
    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a"}},
}
_WEBHOOK: JSON = {
    "name": "a.b.c",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "clientConfig": {"url": "https://127.0.0.1:1/x"},
    "failurePolicy": "Ignore",
    "rules": [{"apiGroups": ["none"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}],
}
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
GOOD: dict[str, JSON] = {
    "/api/v1/namespaces/default/serviceaccounts": {"metadata": {"name": "default"}},
    "/api/v1/namespaces/default/configmaps": {"metadata": {"name": "x"}, "data": {"a": "1"}},
    "/api/v1/namespaces/default/secrets": {"metadata": {"name": "x"}, "stringData": {"a": "b"}},
    "/api/v1/namespaces/default/pods": {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": _TEMPLATE["spec"]},
    "/api/v1/namespaces/default/services": {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}},
    "/api/v1/nodes": {"metadata": {"name": "x"}, "status": {"capacity": {"cpu": "4"}}},
    "/api/v1/namespaces": {"metadata": {"name": "x"}},
    "/apis/apps/v1/namespaces/default/deployments": {"metadata": {"name": "x"}, "spec": _WORKLOAD},
    "/apis/apps/v1/namespaces/default/statefulsets": {
        "metadata": {"name": "x"},
        "spec": {**_WORKLOAD, "serviceName": "s"},
    },
    "/apis/batch/v1/namespaces/default/jobs": {
        "metadata": {"name": "x"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}}},
    },
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "metadata": {"name": "tabs.ex.io"},
        "spec": {
            "group": "ex.io",
            "scope": "Namespaced",
            "names": {"plural": "tabs", "singular": "tab", "kind": "Tab"},
            "versions": [_VERSION],
        },
    },
    "/apis/ex.io/v1/namespaces/default/tabs": {
        "apiVersion": "ex.io/v1",
        "kind": "Tab",
        "metadata": {"name": "x"},
        "spec": {"a": 3, "l": ["a"]},
    },
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": {
        "metadata": {"name": "x"},
        "webhooks": [_WEBHOOK],
    },
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets": {
        "metadata": {"name": "x"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
    },
    f"{_RBAC}/clusterroles": {
        "metadata": {"name": "x"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
    f"{_RBAC}/clusterrolebindings": {
        "metadata": {"name": "x"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"},
        "subjects": [{"kind": "User", "name": "u"}],
    },
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    },
    "/apis/authentication.k8s.io/v1/tokenreviews": {"spec": {"token": "x"}},
    "/api/v1/namespaces/default/bindings": {"metadata": {"name": "x"}, "target": {"kind": "Node", "name": "n"}},
    "/api/v1/namespaces/default/events": {
        "metadata": {"name": "x"},
        "involvedObject": {"kind": "Pod", "namespace": "default"},
    },
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": {
        "metadata": {"name": "x"},
        "spec": {"holderIdentity": "a"},
    },
    "/apis/scheduling.k8s.io/v1/priorityclasses": {"metadata": {"name": "x"}, "value": 5},
    "/api/v1/namespaces/default/persistentvolumeclaims": {
        "metadata": {"name": "x"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices": {
        "metadata": {"name": "x"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["1.2.3.4"]}],
    },
}
_PARTS: dict[str, JSON] = {
    "binding": {"metadata": {"name": "x"}, "target": {"kind": "Node", "name": "n"}},
    "eviction": {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "x"}},
    "token": {"spec": {"expirationSeconds": 600}},
    "scale": {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "x"}, "spec": {"replicas": 2}},
}
_NAMES = [
    "metadata",
    "name",
    "spec",
    "status",
    "data",
    "labels",
    "annotations",
    "containers",
    "$patch",
    "$retainKeys",
    "op",
    "path",
    "value",
    "replicas",
    "finalizers",
    "$setElementOrder/containers",
    "ownerReferences",
    "template",
    "managedFields",
    "resources",
    "limits",
    "requests",
    "cpu",
    "selector",
    "matchLabels",
    "kind",
    "apiVersion",
    "names",
    "versions",
    "group",
    "scope",
    "schema",
    "openAPIV3Schema",
    "properties",
    "type",
    "webhooks",
    "rules",
    "roleRef",
    "subjects",
    "target",
    "deleteOptions",
    "conditions",
    "ports",
    "volumes",
    "env",
    "generateName",
    "namespace",
    "resourceVersion",
    "uid",
    "stringData",
    "initContainers",
    "tolerations",
    "affinity",
    "image",
    "storage",
    "served",
    "plural",
    "clientConfig",
    "sideEffects",
    "clusterIP",
    "minAvailable",
    "strategy",
    "rollingUpdate",
    "items",
    "additionalProperties",
    "default",
    "schedulingGates",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "preconditions",
    "gracePeriodSeconds",
    "propagationPolicy",
]
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 5, 2**40, 2**70, 1.5, 1e300, "", "a", "x", "v1", "metadata", "replace", "delete"),
    *("1Gi", "abc", "2026-01-01T00:00:00Z", "apps/v1", "Pod", "string", "object", "array", "ClusterIP", "/", "a/b/c"),
    *("\0", "é" * 3, "x" * 300, "Foreground", "Orphan"),
)
_QUERIES = [
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "fieldManager",
    "dryRun",
    "force",
    "fieldValidation",
    "container",
    "propagationPolicy",
    "gracePeriodSeconds",
    "resourceVersionMatch",
    "tailLines",
    "watch",
    "timeoutSeconds",
    "includeObject",
    "pretty",
]
_QUERY_VALUES = [
    "1",
    "0",
    "All",
    "Strict",
    "a=b",
    "true",
    "x",
    "Exact",
    "-1",
    "metadata.name=x",
    "é",
    "Foreground",
    "Orphan",
    "a,,",
    "!x",
    "eyJ2IjoiIn0",
]
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@dataclass
class Fuzzer:
    """A seeded source of requests for one server, whose objects it knows."""

    random: random.Random
    server: ApiServer

    def request(self) -> tuple[HttpRequest, HttpRequest | None]:
        """A request, and one that makes sure of its object before it."""
        choose = self.random.choice
        path = choose(list(GOOD))
        method = choose(["GET", "POST", "POST", "PUT", "PUT", "PATCH", "PATCH", "PATCH", "DELETE"])
        good, first, suffix = GOOD[path], None, ""
        if method == "POST":
            part = choose(["", "", "", *_PARTS])
            suffix = f"/x/{part}" if part else ""
        else:
            first = HttpRequest("POST", path, (), {"content-type": "application/json"}, json.dumps(good).encode())
            part = choose(["", "", *self._parts(path)])
            suffix = f"/{good.get('metadata', {}).get('name', 'x')}" + (f"/{part}" if part else "")
        media = self._media(method)
        body = self._body(method, media, _PARTS.get(part, good))
        headers = {"content-type": media, "accept": choose(["", _TABLE])}
        return HttpRequest(method, path + suffix, self._query(media), headers, body), first

    def _parts(self, path: str) -> list[str]:
        pieces = [piece for piece in path.split("/") if piece]
        group, version = ("", pieces[1]) if pieces[0] == "api" else (pieces[1], pieces[2])
        resource = self.server.registry.find(group, version, pieces[-1])
        return sorted(resource.subresources) if resource else []

    def _media(self, method: str) -> str:
        if method == "PATCH":
            return self.random.choice([MERGE_PATCH, STRATEGIC_PATCH, JSON_PATCH, APPLY_PATCH])
        return self.random.choice(["application/json"] * 15 + ["application/yaml", "text/plain", ""])

    def _body(self, method: str, media: str, good: JSON) -> bytes | None:
        if method == "GET":
            return None
        chance = self.random.random()
        if chance < 0.02:
            return self.random.randbytes(40)
        if chance < 0.03:
            depth = self.random.choice([400, 800, 20_000])
            return b'{"metadata":' * depth + b"1" + b"}" * depth
        if chance < 0.035:
            return b" " * 10_000_000
        if media == JSON_PATCH and chance < 0.9:
            return json.dumps([self._operation() for _ in range(self.random.randint(1, 3))]).encode()
        return json.dumps(self._spoilt(good) if chance < 0.8 else self._noise()).encode()

    def _query(self, media: str) -> tuple[tuple[str, str], ...]:
        count = self.random.choice([0, 0, 0, 1, 2])
        query = [(self.random.choice(_QUERIES), self.random.choice(_QUERY_VALUES)) for _ in range(count)]
        if media == APPLY_PATCH and self.random.random() < 0.9:
            query += [("fieldManager", "m"), ("force", self.random.choice(["true", "false"]))]
        return tuple(query)

    def _operation(self) -> JSON:
        choose = self.random.choice
        names = [choose([*_NAMES, "0", "-", "1"]) for _ in range(self.random.randint(0, 4))]
        operation: JSON = {
            "op": choose(["add", "remove", "replace", "move", "copy", "test", "none"]),
            "path": "".join(f"/{name}" for name in names),
        }
        if self.random.random() < 0.8:
            operation["value"] = self._noise(3)
        if self.random.random() < 0.3:
            operation["from"] = "/metadata"
        return operation

    def _noise(self, depth: int = 0) -> Any:
        chance = self.random.random()
        if depth > 5 or chance < 0.35:
            return self.random.choice(_VALUES)
        if chance < 0.5:
            return [self._noise(depth + 1) for _ in range(self.random.randint(0, 3))]
        return {self.random.choice(_NAMES): self._noise(depth + 1) for _ in range(self.random.randint(0, 4))}

    def _spoilt(self, good: JSON) -> Any:
        spoilt = json.loads(json.dumps(good))
        for _ in range(self.random.randint(0, 3)):
            self._spoil(spoilt)
        return spoilt

    def _spoil(self, value: Any) -> None:
        while isinstance(value, dict | list) and value:
            place: Any = self.random.choice(list(value) if isinstance(value, dict) else range(len(value)))
            deeper = isinstance(value[place], dict | list) and value[place]
            if deeper and self.random.random() < 0.6:
                value = value[place]
                continue
            chance = self.random.random()
            if chance < 0.5 or isinstance(value, list):
                value[place] = self._noise(3)
            elif chance < 0.7:
                del value[place]
            else:
                value[self.random.choice(_NAMES)] = self._noise(3)
            return
