"""The roles that every cluster starts with, and the bindings of the system's own groups.

Fewer than kube-apiserver makes (its own components need many), but those that people and charts refer to:
`cluster-admin`, `admin`, `edit`, `view`, discovery and health for everybody, and the node role.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Obj = dict[str, Any]

_GROUP = "rbac.authorization.k8s.io"
_VERSION = f"{_GROUP}/v1"
_AGGREGATE = f"{_GROUP}/aggregate-to-"
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_REVIEWS = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_ISSUER = tuple(path + end for path in ("/.well-known/openid-configuration", "/openid/v1/jwks") for end in ("", "/"))
_DISCOVERY = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH)

_VIEWED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "",
        (
            *("bindings", "configmaps", "endpoints", "events", "limitranges", "namespaces", "namespaces/status"),
            *("persistentvolumeclaims", "persistentvolumeclaims/status", "pods", "pods/log", "pods/status"),
            *("replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status"),
            *("resourcequotas", "resourcequotas/status", "serviceaccounts", "services", "services/status"),
        ),
    ),
    ("discovery.k8s.io", ("endpointslices",)),
    (
        "apps",
        (
            *("controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale"),
            *("deployments/status", "replicasets", "replicasets/scale", "replicasets/status", "statefulsets"),
            *("statefulsets/scale", "statefulsets/status"),
        ),
    ),
    ("autoscaling", ("horizontalpodautoscalers", "horizontalpodautoscalers/status")),
    ("batch", ("cronjobs", "cronjobs/status", "jobs", "jobs/status")),
    ("policy", ("poddisruptionbudgets", "poddisruptionbudgets/status")),
    ("networking.k8s.io", ("ingresses", "ingresses/status", "networkpolicies")),
    ("resource.k8s.io", ("resourceclaims", "resourceclaims/status", "resourceclaimtemplates")),
)
_EDITED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "",
        (
            *("configmaps", "events", "persistentvolumeclaims", "pods", "pods/attach", "pods/exec"),
            *("pods/portforward", "pods/proxy", "pods/eviction", "replicationcontrollers"),
            *("replicationcontrollers/scale", "secrets", "serviceaccounts", "services", "services/proxy"),
        ),
    ),
    (
        "apps",
        (
            *("daemonsets", "deployments", "deployments/rollback", "deployments/scale", "replicasets"),
            *("replicasets/scale", "statefulsets", "statefulsets/scale"),
        ),
    ),
    ("autoscaling", ("horizontalpodautoscalers",)),
    ("batch", ("cronjobs", "jobs")),
    ("coordination.k8s.io", ("leases",)),
    ("policy", ("poddisruptionbudgets",)),
    ("networking.k8s.io", ("ingresses", "networkpolicies")),
    ("resource.k8s.io", ("resourceclaims", "resourceclaimtemplates")),
)


def objects() -> list[Obj]:
    """Cluster roles and cluster role bindings, ready to be created."""
    view = [_rule(group, resources, _READ) for group, resources in _VIEWED]
    edit = [
        _rule("", ("secrets", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "services/proxy"), _READ),
        _rule("", ("serviceaccounts",), ("impersonate",)),
        _rule("", ("serviceaccounts/token",), ("create",)),
        _rule("coordination.k8s.io", ("leases",), _READ),
        *(_rule(group, resources, _WRITE) for group, resources in _EDITED),
    ]
    admin = [
        _rule("authorization.k8s.io", ("localsubjectaccessreviews",), ("create",)),
        _rule(_GROUP, ("rolebindings", "roles"), (*_READ, *_WRITE)),
    ]
    everything = [_rule("*", ("*",), ("*",)), {"nonResourceURLs": ["*"], "verbs": ["*"]}]
    reviews = _rule("authorization.k8s.io", _REVIEWS, ("create",))
    myself = _rule("authentication.k8s.io", ("selfsubjectreviews",), ("create",))
    delegate = [
        _rule("authentication.k8s.io", ("tokenreviews",), ("create",)),
        _rule("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
    ]
    return [
        _role("cluster-admin", everything),
        _role("admin", [], gathers=("admin", "edit", "view")),
        _role("edit", [], gathers=("edit", "view"), given_to="admin"),
        _role("view", [], gathers=("view",), given_to="edit"),
        _role("system:aggregate-to-admin", admin, given_to="admin"),
        _role("system:aggregate-to-edit", edit, given_to="edit"),
        _role("system:aggregate-to-view", view, given_to="view"),
        _role("system:auth-delegator", delegate),
        _role("system:basic-user", [reviews, myself]),
        _role("system:discovery", [{"nonResourceURLs": list(_DISCOVERY), "verbs": ["get"]}]),
        _role("system:public-info-viewer", [{"nonResourceURLs": list(_HEALTH), "verbs": ["get"]}]),
        _role("system:service-account-issuer-discovery", [{"nonResourceURLs": list(_ISSUER), "verbs": ["get"]}]),
        _binding("cluster-admin", "system:masters"),
        _binding("system:basic-user", "system:authenticated"),
        _binding("system:discovery", "system:authenticated"),
        _binding("system:public-info-viewer", "system:authenticated", "system:unauthenticated"),
        _binding("system:service-account-issuer-discovery", "system:serviceaccounts"),
    ]


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Obj:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _role(name: str, rules: list[Obj], *, gathers: Sequence[str] = (), given_to: str = "") -> Obj:
    role: Obj = {"apiVersion": _VERSION, "kind": "ClusterRole", "metadata": _metadata(name), "rules": rules}
    if given_to:
        role["metadata"]["labels"][_AGGREGATE + given_to] = "true"
    if gathers:
        selectors = [{"matchLabels": {_AGGREGATE + name: "true"}} for name in gathers]
        role["aggregationRule"] = {"clusterRoleSelectors": selectors}
    return role


def _binding(role: str, *groups: str) -> Obj:
    return {
        "apiVersion": _VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(role),
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": "Group", "name": group} for group in groups],
    }


def _metadata(name: str) -> Obj:
    return {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }
