"""Policies and bindings as they are stored, read and compiled once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketkube.api.admission import expression_variables
from pocketkube.api.admission.policies.match_resources import MatchResources
from pocketkube.api.expressions.evaluation import CompiledExpression

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Validation:
    """An expression that must be true, and what is said if it is not."""

    expression: CompiledExpression
    message: str
    message_expression: CompiledExpression | None
    reason: str


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    match: MatchResources
    param_kind: tuple[str, str] | None  # apiVersion and kind
    ignore_failures: bool
    conditions: tuple[CompiledExpression, ...]
    variables: Mapping[str, CompiledExpression]
    validations: tuple[Validation, ...]
    annotations: tuple[tuple[str, CompiledExpression], ...]

    @classmethod
    def read(cls, name: str, spec: Mapping[str, Any]) -> Policy:
        """Raises CelSyntaxError or ResultTypeError for what validation does not let through."""
        param_kind = spec.get("paramKind")
        compiler = expression_variables.Compiler(with_params=param_kind is not None)
        conditions = tuple(compiler.condition(each["expression"]) for each in spec.get("matchConditions") or ())
        variables = {
            each["name"]: compiler.variable(each["name"], each["expression"]) for each in spec.get("variables") or ()
        }
        return cls(
            name=name,
            match=MatchResources.read(spec.get("matchConstraints") or {}),
            param_kind=(param_kind.get("apiVersion") or "", param_kind.get("kind") or "") if param_kind else None,
            ignore_failures=spec.get("failurePolicy") == "Ignore",
            conditions=conditions,
            variables=variables,
            validations=tuple(_validation(compiler, each) for each in spec.get("validations") or ()),
            annotations=tuple(
                (each["key"], compiler.annotation(each["valueExpression"]))
                for each in spec.get("auditAnnotations") or ()
            ),
        )


def _validation(compiler: expression_variables.Compiler, given: Mapping[str, Any]) -> Validation:
    message_expression = given.get("messageExpression")
    return Validation(
        expression=compiler.validation(given["expression"]),
        message=(given.get("message") or "").strip(),
        message_expression=compiler.message(message_expression) if message_expression else None,
        reason=given.get("reason") or "Invalid",
    )


@dataclass(frozen=True, slots=True)
class ParamRef:
    """Which objects of the policy's parameter kind a binding uses."""

    name: str
    namespace: str
    selector: Mapping[str, Any] | None
    deny_if_missing: bool

    @classmethod
    def read(cls, reference: Mapping[str, Any]) -> ParamRef:
        return cls(
            name=reference.get("name") or "",
            namespace=reference.get("namespace") or "",
            selector=reference.get("selector"),
            deny_if_missing=reference.get("parameterNotFoundAction") == "Deny",
        )


@dataclass(frozen=True, slots=True)
class Binding:
    name: str
    policy: str
    match: MatchResources | None
    param_ref: ParamRef | None
    actions: tuple[str, ...]

    @classmethod
    def read(cls, name: str, spec: Mapping[str, Any]) -> Binding:
        match, reference = spec.get("matchResources"), spec.get("paramRef")
        return cls(
            name=name,
            policy=spec.get("policyName") or "",
            match=MatchResources.read(match) if match is not None else None,
            param_ref=ParamRef.read(reference) if reference is not None else None,
            actions=tuple(spec.get("validationActions") or ()),
        )
