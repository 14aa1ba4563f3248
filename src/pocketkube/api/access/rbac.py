"""Role-based access control: who may do what, read from Roles, ClusterRoles and their bindings.

The members of `system:masters` may do everything. For everybody else the rules of all bindings that name
the user, one of the user's groups or the service account are tried; one that matches is enough. Rules are
compiled when they are first needed and forgotten whenever a role or a binding changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pocketkube.api.request_attributes import MASTERS, RequestInfo, User
from pocketkube.api.storage.selectors import from_label_selector
from pocketkube.api.storage.store import Bucket, Change, Store

GROUP = "rbac.authorization.k8s.io"
ROLES = Bucket(GROUP, "roles")
CLUSTER_ROLES = Bucket(GROUP, "clusterroles")
BINDINGS = Bucket(GROUP, "rolebindings")
CLUSTER_BINDINGS = Bucket(GROUP, "clusterrolebindings")

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule of a role."""

    verbs: frozenset[str]
    groups: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    urls: tuple[str, ...] = ()

    @classmethod
    def read(cls, rule: Mapping[str, Any]) -> PolicyRule:
        return cls(
            verbs=frozenset(rule.get("verbs") or ()),
            groups=frozenset(rule.get("apiGroups") or ()),
            resources=frozenset(rule.get("resources") or ()),
            names=frozenset(rule.get("resourceNames") or ()),
            urls=tuple(rule.get("nonResourceURLs") or ()),
        )

    def allows(self, info: RequestInfo) -> bool:
        if not ("*" in self.verbs or info.verb in self.verbs):
            return False
        if not info.is_resource:
            return any(_url_matches(url, info.path) for url in self.urls)
        return (
            ("*" in self.groups or info.group in self.groups)
            and self._covers_resource(info.plural, info.subresource)
            and (not self.names or info.name in self.names)
        )

    def _covers_resource(self, plural: str, subresource: str) -> bool:
        if "*" in self.resources:
            return True
        if not subresource:
            return plural in self.resources
        return f"{plural}/{subresource}" in self.resources or f"*/{subresource}" in self.resources


@dataclass(frozen=True, slots=True)
class Grant:
    """Rules that a subject holds through one binding; a namespace of "" means everywhere."""

    namespace: str
    rules: tuple[PolicyRule, ...]
    reason: str


class Rbac:
    """The authorizer of the server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._grants: dict[tuple[str, str], list[Grant]] | None = None
        for bucket in (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS):
            store.listen(bucket, self._forget)

    def allows(self, user: User, info: RequestInfo) -> bool:
        return self.why(user, info) is not None

    def why(self, user: User, info: RequestInfo) -> str | None:
        """What allows the request; None if nothing does."""
        if MASTERS in user.groups:
            return ""
        for grant in self.grants(user):
            if grant.namespace in ("", info.namespace) and any(rule.allows(info) for rule in grant.rules):
                return grant.reason
        return None

    def grants(self, user: User) -> Iterator[Grant]:
        """Everything a user holds, in no particular order."""
        if self._grants is None:
            self._grants = self._compile()
        for subject in (("User", user.name), *(("Group", group) for group in user.groups)):
            yield from self._grants.get(subject, ())

    def rules(self, user: User, namespace: str) -> list[PolicyRule]:
        """The rules that apply to a user in a namespace, cluster-wide ones included."""
        everything = frozenset("*")
        always = [PolicyRule(everything, everything, everything), PolicyRule(everything, urls=("*",))]
        held = (grant for grant in self.grants(user) if grant.namespace in ("", namespace))
        granted = [rule for grant in held for rule in grant.rules]
        return list(dict.fromkeys([*(always if MASTERS in user.groups else ()), *granted]))

    def role_rules(self, kind: str, name: str, namespace: str) -> tuple[PolicyRule, ...] | None:
        """What a role allows; None if there is no such role."""
        bucket, place = (ROLES, namespace) if kind == "Role" else (CLUSTER_ROLES, "")
        stored = self._store.get(bucket, place, name)
        if stored is None:
            return None
        role = stored.decode()
        rules = [*(role.get("rules") or ())]
        for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
            matches = from_label_selector(selector)
            for other in self._store.items(CLUSTER_ROLES):
                if matches(other.labels):
                    rules += other.decode().get("rules") or ()
        return tuple(PolicyRule.read(rule) for rule in rules)

    def _forget(self, change: Change) -> None:
        del change
        self._grants = None

    def _compile(self) -> dict[tuple[str, str], list[Grant]]:
        found: dict[tuple[str, str], list[Grant]] = {}
        known: dict[tuple[str, str, str], tuple[PolicyRule, ...] | None] = {}  # many bindings share a role
        for bucket in (CLUSTER_BINDINGS, BINDINGS):
            for stored in self._store.items(bucket):
                binding, namespace = stored.decode(), stored.key.namespace
                role = binding.get("roleRef") or {}
                place = role.get("kind", ""), role.get("name", ""), namespace if role.get("kind") == "Role" else ""
                if place not in known:
                    known[place] = self.role_rules(*place)
                if not (rules := known[place]):
                    continue
                for subject in binding.get("subjects") or ():
                    grant = Grant(namespace, rules, _reason(stored.key, role, subject))
                    found.setdefault(_subject(subject, namespace), []).append(grant)
        return found


def describe(rule: PolicyRule) -> Obj:
    """A rule as SelfSubjectRulesReview shows it."""
    shown: Obj = {"verbs": sorted(rule.verbs)}
    if rule.urls:
        return shown | {"nonResourceURLs": list(rule.urls)}
    shown |= {"apiGroups": sorted(rule.groups), "resources": sorted(rule.resources)}
    if rule.names:
        shown["resourceNames"] = sorted(rule.names)
    return shown


def covered(wanted: PolicyRule, held: list[PolicyRule]) -> bool:
    """Whether somebody who holds some rules already has everything that a rule would grant."""
    for verb in wanted.verbs:
        for url in wanted.urls:
            if not any(("*" in rule.verbs or verb in rule.verbs) and _url_covers(rule.urls, url) for rule in held):
                return False
        for group in wanted.groups:
            for resource in wanted.resources:
                if not _resource_covered(verb, group, resource, wanted.names, held):
                    return False
    return True


def _resource_covered(verb: str, group: str, resource: str, names: frozenset[str], held: list[PolicyRule]) -> bool:
    """For all names at once: a rule without names covers them all, others cover those that they list."""
    subresource = resource.partition("/")[2]
    wanted = {"*", resource} | ({f"*/{subresource}"} if subresource else set())
    left = set(names)
    for rule in held:
        applies = (
            ("*" in rule.verbs or verb in rule.verbs)
            and ("*" in rule.groups or group in rule.groups)
            and bool(wanted & rule.resources)
        )
        if applies and not rule.names:
            return True
        if applies and names:
            left -= rule.names
            if not left:
                return True
    return False


def _url_covers(held: tuple[str, ...], wanted: str) -> bool:
    return wanted in held or any(url.endswith("*") and wanted.startswith(url[:-1]) for url in held)


def _url_matches(url: str, path: str) -> bool:
    return url == path or (url.endswith("*") and path.startswith(url[:-1]))


def _subject(subject: Obj, namespace: str) -> tuple[str, str]:
    if subject.get("kind") == "ServiceAccount":
        return "User", f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject.get('name')}"
    return subject.get("kind", ""), subject.get("name", "")


def _reason(key: tuple[str, str], role: Obj, subject: Obj) -> str:
    namespace, name = key
    held = f'RoleBinding "{name}/{namespace}"' if namespace else f'ClusterRoleBinding "{name}"'
    who = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    return f'RBAC: allowed by {held} of {role.get("kind")} "{role.get("name")}" to {subject.get("kind")} "{who}"'
