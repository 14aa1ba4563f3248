"""The variables of expressions in admission, and the expressions that may use them.

`object`, `oldObject`, `request` and `namespaceObject` are known everywhere, `authorizer` everywhere but in messages,
`params` where a policy has a parameter kind, and `variables` in everything of a policy but its match conditions.
"""

from __future__ import annotations

from collections.abc import Mapping

from pocketkube.api.expressions import evaluation, types
from pocketkube.api.expressions.checker import Environment
from pocketkube.api.expressions.evaluation import CompiledExpression
from pocketkube.api.expressions.types import Type

_FIELDS = {
    "kubernetes.GroupVersionKind": "group: string, version: string, kind: string",
    "kubernetes.GroupVersionResource": "group: string, version: string, resource: string",
    "kubernetes.UserInfo": ("username: string, uid: string, groups: list(string), extra: map(string, list(string))"),
    "kubernetes.AdmissionRequest": (
        "kind: kubernetes.GroupVersionKind, resource: kubernetes.GroupVersionResource, subResource: string, "
        "requestKind: kubernetes.GroupVersionKind, requestResource: kubernetes.GroupVersionResource, "
        "requestSubResource: string, name: string, namespace: string, operation: string, "
        "userInfo: kubernetes.UserInfo, dryRun: bool, options: dyn"
    ),
    "kubernetes.NamespaceSpec": "finalizers: list(string)",
    "kubernetes.NamespaceCondition": (
        "status: string, type: string, lastTransitionTime: timestamp, message: string, reason: string"
    ),
    "kubernetes.NamespaceStatus": "conditions: list(kubernetes.NamespaceCondition), phase: string",
    "kubernetes.NamespaceMetadata": (
        "name: string, generateName: string, namespace: string, labels: map(string, string), "
        "annotations: map(string, string), UID: string, creationTimestamp: timestamp, "
        "deletionGracePeriodSeconds: int, deletionTimestamp: timestamp, generation: int, resourceVersion: string, "
        "finalizers: list(string)"
    ),
    "kubernetes.Namespace": (
        "metadata: kubernetes.NamespaceMetadata, spec: kubernetes.NamespaceSpec, status: kubernetes.NamespaceStatus"
    ),
}
_VARIABLES = "kubernetes.variables"


def _read(fields: str) -> dict[str, Type]:
    described = types.parse(f"x({', '.join(each.split(': ')[1] for each in _split(fields))})").of
    names = [each.split(": ")[0] for each in _split(fields)]
    return dict(zip(names, described, strict=True))


def _split(fields: str) -> list[str]:
    """At the commas between fields, not at those inside of types."""
    found: list[str] = []
    for part in fields.split(", "):
        if ": " in part:
            found.append(part)
        else:
            found[-1] += f", {part}"
    return found


_OBJECTS = {name: _read(fields) for name, fields in _FIELDS.items()}
_EVERYWHERE = {
    "object": types.DYN,
    "oldObject": types.DYN,
    "request": Type("kubernetes.AdmissionRequest"),
    "namespaceObject": Type("kubernetes.Namespace"),
}
_AUTHORIZER = {
    "authorizer": Type("kubernetes.authorization.Authorizer"),
    "authorizer.requestResource": Type("kubernetes.authorization.ResourceCheck"),
}
_PARAMS = {"params": types.DYN}


class Compiler:
    """Compiles the expressions of one policy. Variables are compiled in their order: each may use those before it."""

    def __init__(self, *, with_params: bool) -> None:
        self._params = _PARAMS if with_params else {}
        self._variables: dict[str, Type] = {}

    def condition(self, text: str) -> CompiledExpression:
        return evaluation.compile_expression(text, self._environment(_AUTHORIZER))

    def variable(self, name: str, text: str) -> CompiledExpression:
        """One that does not compile is known to later expressions, too: only the first mistake is reported."""
        try:
            found = evaluation.compile_expression(text, self._composed(_AUTHORIZER), None)
        except ValueError:
            self._variables[name] = types.DYN
            raise
        self._variables[name] = found.result
        return found

    def validation(self, text: str) -> CompiledExpression:
        return evaluation.compile_expression(text, self._composed(_AUTHORIZER))

    def message(self, text: str) -> CompiledExpression:
        return evaluation.compile_expression(text, self._composed({}), (types.STRING,))

    def annotation(self, text: str) -> CompiledExpression:
        return evaluation.compile_expression(text, self._composed(_AUTHORIZER), (types.STRING, types.NULL))

    def _environment(self, more: Mapping[str, Type]) -> Environment:
        return Environment({**_EVERYWHERE, **self._params, **more}, _OBJECTS)

    def _composed(self, more: Mapping[str, Type]) -> Environment:
        variables = {"variables": Type(_VARIABLES)} if self._variables else {}
        plain = self._environment({**more, **variables})
        return Environment(plain.names, {**_OBJECTS, _VARIABLES: self._variables})
