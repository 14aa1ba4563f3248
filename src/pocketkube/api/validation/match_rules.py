"""Rules about what webhooks and policies match: resources, operations, conditions. Nothing is registered here that
cannot be evaluated later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pocketkube.api.admission.expression_variables import Compiler
from pocketkube.api.expressions import evaluation
from pocketkube.api.validation import name_rules
from pocketkube.api.validation.problems import Problems
from pocketkube.api.validation.selectors import label_selector

Obj = dict[str, Any]

MOST_CONDITIONS = 64
OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
SCOPES = ("*", "Cluster", "Namespaced")
MATCH_POLICIES = ("Equivalent", "Exact")


def rule(found: Problems, path: str, given: Obj) -> None:
    """A rule with operations."""
    operations = given.get("operations") or []
    if not operations:
        found.required(f"{path}.operations")
    if len(operations) > 1 and "*" in operations:
        found.invalid(f"{path}.operations", operations, "if '*' is present, must not specify other operations")
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            found.unsupported(f"{path}.operations[{index}]", operation, OPERATIONS)
    for field, named in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = given.get(field) or []
        if not values:
            found.required(f"{path}.{field}")
        if len(values) > 1 and "*" in values:
            found.invalid(f"{path}.{field}", values, f"if '*' is present, must not specify other {named}")
    for index, version in enumerate(given.get("apiVersions") or ()):
        if not version:
            found.required(f"{path}.apiVersions[{index}]")
    _resources(found, f"{path}.resources", given.get("resources") or [])
    found.one_of(f"{path}.scope", given.get("scope"), SCOPES, required=False)


def _resources(found: Problems, path: str, resources: list[str]) -> None:
    if not resources:
        found.required(path)
    whole: set[str] = set()  # `pods/*` and `*/status`: what they cover must not be named again
    for index, resource in enumerate(resources):
        name, slash, subresource = resource.partition("/")
        if not resource:
            found.required(f"{path}[{index}]")
        for wildcard in (f"{name}/*", f"*/{subresource}"):
            if slash and wildcard in whole:
                why = f"if '{wildcard}' is present, must not specify {resource}"
                found.invalid(f"{path}[{index}]", resource, why)
        if slash and "*" in (name, subresource):
            whole.add(resource)
    if len(resources) > 1 and "*/*" in resources:
        found.invalid(path, resources, "if '*/*' is present, must not specify other resources")
    plain = [each for each in resources if "/" not in each]
    if "*" in plain and plain[-1] != "*":
        why = "if '*' is present, must not specify other resources without subresources"
        found.invalid(path, resources, why)


def match_resources(found: Problems, path: str, given: Obj) -> None:
    found.one_of(f"{path}.matchPolicy", given.get("matchPolicy"), MATCH_POLICIES)
    for field in ("namespaceSelector", "objectSelector"):
        label_selector(found, f"{path}.{field}", given.get(field) or {})
    for field in ("resourceRules", "excludeResourceRules"):
        for index, named in enumerate(given.get(field) or ()):
            here = f"{path}.{field}[{index}]"
            _resource_names(found, f"{here}.resourceNames", named.get("resourceNames") or [])
            rule(found, here, named)


def _resource_names(found: Problems, path: str, names: list[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        found.all_of(f"{path}[{index}]", name, name_rules.path_segment(name))
        if name in seen:
            found.duplicate(f"{path}[{index}]", name)
        seen.add(name)


def conditions(found: Problems, path: str, given: list[Obj], compiler: Compiler) -> None:
    if len(given) > MOST_CONDITIONS:
        found.too_many(path, len(given), MOST_CONDITIONS)
    names: set[str] = set()
    for index, condition in enumerate(given):
        here, name, text = f"{path}[{index}]", condition.get("name") or "", (condition.get("expression") or "").strip()
        if not text:
            found.required(f"{here}.expression")
        else:
            expression(found, f"{here}.expression", text, compiler.condition)
        if not name:
            found.required(f"{here}.name")
        else:
            found.all_of(f"{here}.name", name, name_rules.qualified_name(name))
            if name in names:
                found.duplicate(f"{here}.name", name)
        names.add(name)


def expression(found: Problems, path: str, text: str, compile_it: Callable[[str], object]) -> None:
    """An expression that must compile."""
    try:
        compile_it(text)
    except evaluation.ResultTypeError as problem:
        found.invalid(path, text, str(problem))
    except evaluation.CelSyntaxError as problem:
        found.invalid(path, text, f"compilation failed: {problem}")
    except evaluation.PlanningError as problem:
        found.internal(path, str(problem))
