"""Rules for admission policies and their bindings. Every expression is compiled before it is registered."""

from __future__ import annotations

import re
from typing import Any

from pocketkube.api.admission.expression_variables import Compiler
from pocketkube.api.validation import match_rules, name_rules
from pocketkube.api.validation.problems import Problems
from pocketkube.api.validation.selectors import label_selector

Obj = dict[str, Any]

MOST_AUDIT_ANNOTATIONS = 20
LONGEST_VALUE_EXPRESSION = 5 * 1024
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = frozenset(
    {"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"}
    | {"let", "loop", "package", "namespace", "return", "var", "void", "while"}
)
_ONE_NEEDED = "validations or auditAnnotations must contain at least one item"


def policy(found: Problems, new: Obj, old: Obj | None) -> None:
    del old
    spec = new.get("spec") or {}
    found.one_of("spec.failurePolicy", spec.get("failurePolicy"), ("Fail", "Ignore"))
    kind = spec.get("paramKind")
    if kind is not None:
        _param_kind(found, "spec.paramKind", kind)
    match = spec.get("matchConstraints")
    if match is None:
        found.required("spec.matchConstraints")
    else:
        match_rules.match_resources(found, "spec.matchConstraints", match)
        if not match.get("resourceRules"):
            found.required("spec.matchConstraints.resourceRules")
    compiler = Compiler(with_params=kind is not None)
    match_rules.conditions(found, "spec.matchConditions", spec.get("matchConditions") or [], compiler)
    for index, variable in enumerate(spec.get("variables") or ()):
        _variable(found, f"spec.variables[{index}]", variable, compiler)
    validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not annotations:
        found.required("spec.validations", _ONE_NEEDED)
        found.required("spec.auditAnnotations", _ONE_NEEDED)
    for index, validation in enumerate(validations):
        _validation(found, f"spec.validations[{index}]", validation, compiler)
    _annotations(found, annotations, new["metadata"].get("name") or "", compiler)


def binding(found: Problems, new: Obj, old: Obj | None) -> None:
    del old
    spec = new.get("spec") or {}
    name = spec.get("policyName") or ""
    if not name:
        found.required("spec.policyName")
    else:
        found.all_of("spec.policyName", name, name_rules.dns_subdomain(name))
    if spec.get("paramRef") is not None:
        _param_ref(found, "spec.paramRef", spec["paramRef"])
    if spec.get("matchResources") is not None:
        match_rules.match_resources(found, "spec.matchResources", spec["matchResources"])
    _actions(found, "spec.validationActions", spec.get("validationActions") or [])


def _param_kind(found: Problems, path: str, kind: Obj) -> None:
    version = kind.get("apiVersion") or ""
    group, _, number = version.rpartition("/")
    if not version:
        found.required(f"{path}.apiVersion")
    elif version.count("/") > 1:
        found.invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    else:
        if group and (wrong := list(name_rules.dns_subdomain(group))):
            found.invalid(f"{path}.apiVersion", group, ",".join(wrong))
        if not number:
            found.invalid(f"{path}.apiVersion", version, "version must be specified")
        elif wrong := list(name_rules.dns1035_label(number)):
            found.invalid(f"{path}.apiVersion", number, ",".join(wrong))
    name = kind.get("kind") or ""
    if not name:
        found.required(f"{path}.kind")
    elif wrong := list(name_rules.dns1035_label(name.lower())):
        found.invalid(f"{path}.kind", name, f"may have mixed case, but should otherwise match: {','.join(wrong)}")


def _variable(found: Problems, path: str, variable: Obj, compiler: Compiler) -> None:
    name, text = variable.get("name") or "", variable.get("expression") or ""
    if not name.strip():
        found.required(f"{path}.name", "name is not specified")
    elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
        found.invalid(f"{path}.name", name, "must be a valid CEL identifier")
    if not text.strip():
        found.required(f"{path}.expression", "expression is not specified")
    else:
        match_rules.expression(found, f"{path}.expression", text, lambda given: compiler.variable(name, given))


def _validation(found: Problems, path: str, validation: Obj, compiler: Compiler) -> None:
    text, message = validation.get("expression") or "", validation.get("message") or ""
    if not text.strip():
        found.required(f"{path}.expression", "expression is not specified")
    else:
        match_rules.expression(found, f"{path}.expression", text, compiler.validation)
    message_expression = validation.get("messageExpression") or ""
    if message_expression and not message_expression.strip():
        found.invalid(f"{path}.messageExpression", message_expression, "must be non-empty if specified")
    elif message_expression:
        match_rules.expression(found, f"{path}.messageExpression", message_expression, compiler.message)
    if message and not message.strip():
        found.invalid(f"{path}.message", message, "message must be non-empty if specified")
    elif set("\r\n") & set(message.strip()):
        found.invalid(f"{path}.message", message, "must not contain line breaks")
    if validation.get("reason") is not None and validation["reason"] not in _REASONS:
        found.unsupported(f"{path}.reason", validation["reason"], _REASONS)


def _annotations(found: Problems, annotations: list[Obj], policy_name: str, compiler: Compiler) -> None:
    if len(annotations) > MOST_AUDIT_ANNOTATIONS:
        why = f"must not have more than {MOST_AUDIT_ANNOTATIONS} auditAnnotations"
        found.invalid("spec.auditAnnotations", annotations, why)
    keys: set[str] = set()
    for index, annotation in enumerate(annotations):
        here, key = f"spec.auditAnnotations[{index}]", annotation.get("key") or ""
        if policy_name:
            found.all_of(f"{here}.key", f"{policy_name}/{key}", name_rules.qualified_name(f"{policy_name}/{key}"))
        else:
            found.invalid(f"{here}.key", key, "requires metadata.name be non-empty")
        text = (annotation.get("valueExpression") or "").strip()
        if not text:
            found.required(f"{here}.valueExpression", "valueExpression is not specified")
        elif len(text.encode()) > LONGEST_VALUE_EXPRESSION:
            found.required(f"{here}.valueExpression", f"must not exceed {LONGEST_VALUE_EXPRESSION} bytes in length")
        else:
            match_rules.expression(found, f"{here}.valueExpression", text, compiler.annotation)
        if key in keys:
            found.duplicate(f"{here}.key", key)
        keys.add(key)


def _param_ref(found: Problems, path: str, reference: Obj) -> None:
    name, selector = reference.get("name") or "", reference.get("selector")
    exclusive = "name and selector are mutually exclusive"
    if name:
        found.all_of(f"{path}.name", name, name_rules.path_segment(name))
        if selector is not None:
            found.forbidden(f"{path}.name", exclusive)
    if selector is not None:
        label_selector(found, f"{path}.selector", selector)
        if name:
            found.forbidden(f"{path}.selector", exclusive)
    if not name and selector is None:
        found.required(path, "one of name or selector must be specified")
    found.one_of(f"{path}.parameterNotFoundAction", reference.get("parameterNotFoundAction"), ("Deny", "Allow"))


def _actions(found: Problems, path: str, actions: list[str]) -> None:
    seen: set[str] = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            found.unsupported(f"{path}[{index}]", action, _ACTIONS)
        if action in seen:
            found.duplicate(f"{path}[{index}]", action)
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        why = "must not contain both Deny and Warn (repeating the same validation failure information in the API "
        found.invalid(path, actions, f"{why}response and headers serves no purpose)")
    if not actions:
        found.required(path, "at least one validation action is required")
