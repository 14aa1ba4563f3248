"""Admission that every cluster has: namespaces, accounts, priorities, runtime classes, limits, quotas, RBAC.

Plugins change an object in place (`mutate`, before any webhook) or refuse it (`validate`, after all of
them), in the order in which kube-apiserver runs them.
"""

from __future__ import annotations

from typing import Any

from pocketkube.api import status
from pocketkube.api.access import rbac
from pocketkube.api.access.rbac import PolicyRule, Rbac
from pocketkube.api.admission import resource_quotas
from pocketkube.api.admission.limit_ranges import LimitRanges
from pocketkube.api.admission.quota_ledger import QuotaLedger
from pocketkube.api.admission.service_accounts import ServiceAccountPlugin
from pocketkube.api.request_attributes import Attributes, RequestInfo
from pocketkube.api.storage.store import Bucket, Store

Obj = dict[str, Any]

IMMORTAL_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})
EVICTION_TOLERATION_SECONDS = 300
PREEMPT = "PreemptLowerPriority"

_NAMESPACES = Bucket("", "namespaces")
_PRIORITY_CLASSES = Bucket("scheduling.k8s.io", "priorityclasses")
_RUNTIME_CLASSES = Bucket("node.k8s.io", "runtimeclasses")
_PODS = "core_v1.Pod"
_NODES = "core_v1.Node"
_CLAIMS = "core_v1.PersistentVolumeClaim"
_PROTECTED = {_CLAIMS: "kubernetes.io/pvc-protection", "core_v1.PersistentVolume": "kubernetes.io/pv-protection"}
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_STORAGE_CLASSES = Bucket("storage.k8s.io", "storageclasses")
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class Builtin:
    """All plugins; `authorizer` makes sure that nobody grants rights that they do not have."""

    def __init__(self, store: Store, authorizer: Rbac | None = None, *, with_controllers: bool = False) -> None:
        self._with_controllers = with_controllers
        self._store = store
        self._authorizer = authorizer
        self._accounts = ServiceAccountPlugin(store)
        self._limits = LimitRanges(store)
        self.quotas = QuotaLedger(store)

    async def mutate(self, attrs: Attributes, obj: Obj) -> None:
        if attrs.operation == "CREATE":
            self._namespace_lives(attrs)
        if attrs.operation == "CREATE" and attrs.resource.model == _PODS and not attrs.subresource:
            spec = obj.setdefault("spec", {})
            self._limits.fill(attrs, obj)
            await self._accounts.admit(attrs, obj)
            self._priority(attrs, spec)
            _default_tolerations(spec)
            self._runtime_class(attrs, spec)

        if attrs.operation == "CREATE" and not attrs.subresource:
            self._new_claim(attrs, obj)
            if self._with_controllers:
                _hold_back(attrs, obj)

    def _new_claim(self, attrs: Attributes, obj: Obj) -> None:
        """A claim without a class gets the one that is marked as the default; the newest where there are several."""
        spec = obj.get("spec") or {}
        if attrs.resource.model != _CLAIMS or spec.get("storageClassName") is not None:
            return
        classes = (stored.decode() for stored in self._store.items(_STORAGE_CLASSES))
        marked = [each for each in classes if (each["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"]
        marked.sort(key=lambda each: each["metadata"]["name"])
        if chosen := max(marked, key=lambda each: each["metadata"]["creationTimestamp"], default=None):
            spec["storageClassName"] = chosen["metadata"]["name"]

    async def validate(self, attrs: Attributes, obj: Obj | None, old: Obj | None) -> None:
        del old
        if attrs.operation == "CREATE":
            self._namespace_lives(attrs)
        deleted = attrs.name if attrs.operation == "DELETE" else ""
        if attrs.resource.model == "core_v1.Namespace" and deleted in IMMORTAL_NAMESPACES:
            raise status.forbidden(attrs.resource, attrs.name, "this namespace may not be deleted")
        if obj is None or attrs.subresource:
            return
        if attrs.operation == "CREATE" and attrs.resource.model == _PODS:
            self._limits.check(attrs, obj)
        if attrs.resource.model == "scheduling_v1.PriorityClass":
            self._one_default_priority(attrs, obj)
        elif attrs.resource.group == rbac.GROUP:
            self._no_escalation(attrs, obj)

    def check_quotas(self, attrs: Attributes, obj: Obj | None, old: Obj | None) -> None:
        """The very last check: only what everybody else has let through is counted."""
        if obj is not None:
            resource_quotas.check(self.quotas, attrs, obj, old)

    def _namespace_lives(self, attrs: Attributes) -> None:
        if not attrs.resource.namespaced or not attrs.namespace or "get" not in attrs.resource.verbs:
            return
        stored = self._store.get(_NAMESPACES, "", attrs.namespace)
        if stored is None:
            details = {"name": attrs.namespace, "kind": "namespaces"}
            raise status.ApiStatus(404, "NotFound", f'namespaces "{attrs.namespace}" not found', details)
        namespace = stored.decode()
        if not namespace["metadata"].get("deletionTimestamp"):
            return
        why = f"unable to create new content in namespace {attrs.namespace} because it is being terminated"
        problem = status.forbidden(attrs.resource, attrs.name, why)
        message = f"namespace {attrs.namespace} is being terminated"
        cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
        problem.details = {**(problem.details or {}), "causes": [cause]}
        raise problem

    def _priority(self, attrs: Attributes, spec: Obj) -> None:
        name = spec.get("priorityClassName")
        found = self._priority_class(name) if name else self._default_priority_class()
        if name and found is None:
            raise status.forbidden(attrs.resource, attrs.name, f"no PriorityClass with name {name} was found")
        if found is not None and not name:
            spec["priorityClassName"] = found["metadata"]["name"]
        value = found.get("value", 0) if found else 0
        policy = (found or {}).get("preemptionPolicy", PREEMPT)
        for field, given, computed, what in (
            ("priority", spec.get("priority"), value, "the integer value of priority"),
            ("preemptionPolicy", spec.get("preemptionPolicy"), policy, "the string value of PreemptionPolicy"),
        ):
            if given is not None and given != computed:
                why = (
                    f"{what} ({given}) must not be provided in pod spec; priority admission controller computed "
                    f"{computed} from the given PriorityClass name"
                )
                raise status.forbidden(attrs.resource, attrs.name, why)
            spec[field] = computed

    def _priority_class(self, name: str) -> Obj | None:
        stored = self._store.get(_PRIORITY_CLASSES, "", name)
        return stored.decode() if stored else None

    def _default_priority_class(self) -> Obj | None:
        classes = (stored.decode() for stored in self._store.items(_PRIORITY_CLASSES))
        defaults = [each for each in classes if each.get("globalDefault")]
        return min(defaults, key=lambda each: each.get("value", 0), default=None)

    def _one_default_priority(self, attrs: Attributes, obj: Obj) -> None:
        other = self._default_priority_class() if obj.get("globalDefault") else None
        if other is not None and other["metadata"]["name"] != obj["metadata"].get("name"):
            why = f"PriorityClass {other['metadata']['name']} is already marked as default. Only one default can exist"
            raise status.forbidden(attrs.resource, attrs.name, why)

    def _runtime_class(self, attrs: Attributes, spec: Obj) -> None:
        name = spec.get("runtimeClassName")
        stored = self._store.get(_RUNTIME_CLASSES, "", name) if name else None
        if name and stored is None:
            raise status.forbidden(attrs.resource, attrs.name, f'pod rejected: RuntimeClass "{name}" not found')
        found = stored.decode() if stored else {}
        overhead = (found.get("overhead") or {}).get("podFixed")
        if spec.get("overhead") and spec["overhead"] != overhead:
            why = "Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            if overhead is None:
                why = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
            raise status.forbidden(attrs.resource, attrs.name, f"pod rejected: {why}")
        if overhead:
            spec["overhead"] = overhead
        scheduling = found.get("scheduling") or {}
        self._runtime_nodes(attrs, spec, scheduling.get("nodeSelector") or {})
        for toleration in scheduling.get("tolerations") or ():
            tolerations = spec.setdefault("tolerations", [])
            if toleration not in tolerations:
                tolerations.append(toleration)

    def _runtime_nodes(self, attrs: Attributes, spec: Obj, wanted: Obj) -> None:
        own = spec.get("nodeSelector") or {}
        for key, value in wanted.items():
            if own.get(key, value) != value:
                why = (
                    f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                    f"pod.spec.nodeSelector[{key}] = {own[key]}"
                )
                raise status.forbidden(attrs.resource, attrs.name, why)
        if wanted:
            spec["nodeSelector"] = own | wanted

    def _no_escalation(self, attrs: Attributes, obj: Obj) -> None:
        """Rights can be handed out only by those who hold them (or the verbs `escalate` and `bind`)."""
        if self._authorizer is None or attrs.dry_run:
            return
        binding = attrs.resource.plural.endswith("bindings")
        role = obj.get("roleRef") or {}
        if binding:
            where = ("clusterroles" if role.get("kind") == "ClusterRole" else "roles", role.get("name", ""))
            wanted = self._authorizer.role_rules(role.get("kind", ""), role.get("name", ""), attrs.namespace) or ()
        else:
            where = (attrs.resource.plural, attrs.name)
            wanted = tuple(PolicyRule.read(rule) for rule in obj.get("rules") or ())
        verb = "bind" if binding else "escalate"
        asked = RequestInfo(verb, "", rbac.GROUP, "v1", where[0], "", attrs.namespace, where[1])
        if self._authorizer.allows(attrs.user, asked):
            return
        held = self._authorizer.rules(attrs.user, attrs.namespace)
        missing = [rule for rule in wanted if not rbac.covered(rule, held)]
        if missing:
            listed = "\n".join(_rule_text(rule) for rule in missing)
            why = (
                f'user "{attrs.user.name}" (groups={list(attrs.user.groups)}) is attempting to grant RBAC permissions '
            )
            raise status.forbidden(attrs.resource, attrs.name, f"{why}not currently held:\n{listed}".replace("'", '"'))


def _hold_back(attrs: Attributes, obj: Obj) -> None:
    """The not-ready taint and protection finalizers, which only controllers remove."""
    if attrs.resource.model == _NODES:
        _wait_until_ready(obj.setdefault("spec", {}))
    if (finalizer := _PROTECTED.get(attrs.resource.model or "")) is not None:
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if finalizer not in finalizers:
            finalizers.append(finalizer)


def _wait_until_ready(spec: Obj) -> None:
    """A new node takes nothing until the node controller has seen it ready."""
    taints = spec.setdefault("taints", [])
    if not any(each.items() >= _NOT_READY.items() for each in taints):
        taints.append(dict(_NOT_READY))


def _default_tolerations(spec: Obj) -> None:
    tolerations = spec.get("tolerations") or []
    for condition in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{condition}"
        if not any(_tolerates(each, key) for each in tolerations):
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**toleration, "tolerationSeconds": EVICTION_TOLERATION_SECONDS})
    spec["tolerations"] = tolerations


def _tolerates(toleration: Obj, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def _rule_text(rule: PolicyRule) -> str:
    parts = {
        "APIGroups": sorted(rule.groups),
        "NonResourceURLs": list(rule.urls),
        "Resources": sorted(rule.resources),
        "ResourceNames": sorted(rule.names),
        "Verbs": sorted(rule.verbs),
    }
    quoted = ((name, [f'"{each}"' for each in values]) for name, values in parts.items() if values)
    texts = (f"{name}:[{', '.join(values)}]" for name, values in quoted)
    return f"{{{', '.join(texts)}}}"
