"""Rules for where a pod may run: tolerations, affinity, spreading, gates."""

from __future__ import annotations

from typing import Any

from pocketkube.api.validation import name_rules
from pocketkube.api.validation.problems import Problems
from pocketkube.api.validation.selectors import label_selector, labels

Obj = dict[str, Any]

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_HIGHEST_WEIGHT = 100


def pod_scheduling(found: Problems, path: str, spec: Obj) -> None:
    labels(found, f"{path}.nodeSelector", spec.get("nodeSelector") or {})
    _affinity(found, f"{path}.affinity", spec.get("affinity") or {})
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        _toleration(found, f"{path}.tolerations[{index}]", toleration)
    _spreading(found, f"{path}.topologySpreadConstraints", spec.get("topologySpreadConstraints") or [])
    _gates(found, f"{path}.schedulingGates", spec.get("schedulingGates") or [])


def taints(found: Problems, path: str, given: list[Obj]) -> None:
    """Of nodes. kube-apiserver calls the place `metadata.taints`, and so does the caller."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(given):
        here = f"{path}[{index}]"
        key, effect = taint.get("key") or "", taint.get("effect") or ""
        found.all_of(f"{here}.key", key, name_rules.qualified_name(key))
        if taint.get("value"):
            found.all_of(f"{here}.value", taint["value"], name_rules.label_value(taint["value"]))
        found.one_of(f"{here}.effect", effect, TAINT_EFFECTS)
        if (key, effect) in seen:
            found.duplicate(here, {"Key": key, "Effect": effect}, "taints must be unique by key and effect pair")
        seen.add((key, effect))


def _toleration(found: Problems, path: str, toleration: Obj) -> None:
    key, operator = toleration.get("key") or "", toleration.get("operator") or ""
    value, effect = toleration.get("value") or "", toleration.get("effect") or ""
    if key:
        found.all_of(f"{path}.key", key, name_rules.qualified_name(key))
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.invalid(f"{path}.operator", operator, why)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        found.invalid(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator in ("Equal", ""):
        found.all_of(f"{path}.operator", value, name_rules.label_value(value))
    elif operator == "Exists":
        if value:
            found.invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")
    else:
        found.unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    if effect:
        found.one_of(f"{path}.effect", effect, TAINT_EFFECTS)


def _affinity(found: Problems, path: str, affinity: Obj) -> None:
    node = affinity.get("nodeAffinity") or {}
    here = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None:
        terms = required.get("nodeSelectorTerms") or []
        if not terms:
            found.required(here, "must have at least one node selector term")
        for index, term in enumerate(terms):
            _node_term(found, f"{here}[{index}]", term)
    for index, term in enumerate(node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        here = f"{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        _weight(found, f"{here}.weight", term.get("weight", 0))
        _node_term(found, f"{here}.preference", term.get("preference") or {})
    for kind in ("podAffinity", "podAntiAffinity"):
        given = affinity.get(kind) or {}
        for index, term in enumerate(given.get("requiredDuringSchedulingIgnoredDuringExecution") or ()):
            _pod_term(found, f"{path}.{kind}.requiredDuringSchedulingIgnoredDuringExecution[{index}]", term)
        for index, term in enumerate(given.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
            here = f"{path}.{kind}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
            _weight(found, f"{here}.weight", term.get("weight", 0))
            _pod_term(found, f"{here}.podAffinityTerm", term.get("podAffinityTerm") or {})


def _weight(found: Problems, path: str, weight: int) -> None:
    if not 1 <= weight <= _HIGHEST_WEIGHT:
        found.invalid(path, weight, f"must be in the range 1-{_HIGHEST_WEIGHT}")


def _node_term(found: Problems, path: str, term: Obj) -> None:
    for part in ("matchExpressions", "matchFields"):
        for index, requirement in enumerate(term.get(part) or ()):
            _node_requirement(found, f"{path}.{part}[{index}]", requirement)


def _node_requirement(found: Problems, path: str, requirement: Obj) -> None:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    match operator:
        case "In" | "NotIn":
            if not values:
                found.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                found.forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        case "Gt" | "Lt":
            if len(values) != 1:
                found.required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        case _:
            found.invalid(f"{path}.operator", operator, "not a valid selector operator")
    key = requirement.get("key") or ""
    found.all_of(f"{path}.key", key, name_rules.qualified_name(key))


def _pod_term(found: Problems, path: str, term: Obj) -> None:
    for part in ("labelSelector", "namespaceSelector"):
        if part in term:
            label_selector(found, f"{path}.{part}", term[part])
    for index, namespace in enumerate(term.get("namespaces") or ()):
        found.all_of(f"{path}.namespaces[{index}]", namespace, name_rules.dns_label(namespace))
    key = term.get("topologyKey") or ""
    if not key:
        found.required(f"{path}.topologyKey", "can not be empty")
    found.all_of(f"{path}.topologyKey", key, name_rules.qualified_name(key))


def _spreading(found: Problems, path: str, constraints: list[Obj]) -> None:
    for index, constraint in enumerate(constraints):
        here = f"{path}[{index}]"
        skew = constraint.get("maxSkew", 0)
        if skew <= 0:
            found.invalid(f"{here}.maxSkew", skew, "must be greater than zero")
        if not constraint.get("topologyKey"):
            found.required(f"{here}.topologyKey", "can not be empty")
        action = constraint.get("whenUnsatisfiable") or ""
        if action not in _SPREAD_ACTIONS:
            found.unsupported(f"{here}.whenUnsatisfiable", action, _SPREAD_ACTIONS)
        if "labelSelector" in constraint:
            label_selector(found, f"{here}.labelSelector", constraint["labelSelector"])


def _gates(found: Problems, path: str, gates: list[Obj]) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        found.all_of(f"{path}[{index}]", name, name_rules.qualified_name(name))
        if name in seen:
            found.duplicate(f"{path}[{index}]", name)
        seen.add(name)
