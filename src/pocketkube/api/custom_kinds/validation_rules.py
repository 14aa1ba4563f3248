"""Validation rules of custom kinds (`x-kubernetes-validations`): checked when registered, evaluated on every write."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pocketkube.api.expressions import evaluation, optional_values, timestamps, types
from pocketkube.api.expressions.checker import Environment
from pocketkube.api.status import Cause

Schema = Mapping[str, Any]

KEY = "x-kubernetes-validations"

_ENVIRONMENT = Environment({"self": types.DYN, "oldSelf": types.DYN}, escaped_fields=True)
_BOOL = (types.BOOL, types.DYN)  # the types of fields are not known to the checker
_TEXT = (types.STRING, types.DYN)
_OLD = re.compile(r"\boldSelf\b")
_TIMES: dict[str, Callable[[str], Any]] = {
    "date": lambda text: timestamps.timestamp(f"{text}T00:00:00Z"),
    "date-time": timestamps.timestamp,
    "duration": timestamps.duration,
}
_WORDS = {
    "FieldValueInvalid": 'Invalid value: "{type}": {message}',
    "FieldValueForbidden": "Forbidden: {message}",
    "FieldValueRequired": "Required value: {message}",
    "FieldValueDuplicate": 'Duplicate value: "{type}"',
}


def violations(schema: Schema, value: Any, old: Any, path: str) -> Iterator[Cause]:
    """The rules of one place that its value breaks. `old` is None where nothing stood before."""
    for rule in schema.get(KEY) or ():
        about_change = _OLD.search(rule["rule"]) is not None
        if about_change and old is None and not rule.get("optionalOldSelf"):
            continue
        values = {"self": _typed(schema, value), "oldSelf": _typed(schema, old)}
        if rule.get("optionalOldSelf"):
            values["oldSelf"] = optional_values.NONE if old is None else optional_values.Optional(values["oldSelf"])
        try:
            if evaluation.cached_expression(rule["rule"], _ENVIRONMENT, _BOOL).is_true(values):
                continue
            message = _message(rule, values)
        except evaluation.EvaluationError as problem:
            message = f"{problem} evaluating rule: {rule['rule']}"
        reason = rule.get("reason") or "FieldValueInvalid"
        text = _WORDS.get(reason, _WORDS["FieldValueInvalid"]).format(type=_type(schema), message=message)
        yield Cause(f"{path}{rule.get('fieldPath') or ''}".lstrip("."), text, reason)


def exist(schema: Schema) -> bool:
    """Whether there is a rule anywhere in a schema."""
    if schema.get(KEY):
        return True
    inner = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return any(isinstance(each, Mapping) and exist(each) for each in inner)


def refused(schema: Schema, path: str) -> Iterator[Cause]:
    """What is wrong with the rules of one place of a schema that is to be registered."""
    for index, rule in enumerate(schema.get(KEY) or ()):
        here = f"{path}.{KEY}[{index}]"
        text = (rule.get("rule") or "").strip()
        if not text:
            yield Cause(f"{here}.rule", "Required value: rule is not specified", "FieldValueRequired")
        elif why := _why_not(text, _BOOL):
            yield Cause(f"{here}.rule", f'Invalid value: "{text}": {why}')
        expression = rule.get("messageExpression")
        if expression and (why := _why_not(expression, _TEXT)):
            yield Cause(f"{here}.messageExpression", f'Invalid value: "{expression}": {why}')


@functools.lru_cache(maxsize=1024)
def _why_not(text: str, results: tuple[types.Type, ...]) -> str:
    try:
        evaluation.cached_expression(text, _ENVIRONMENT, results)
    except evaluation.ResultTypeError:
        return f"cel expression must evaluate to a {results[0]}" if results is _BOOL else "must evaluate to a string"
    except (evaluation.CelSyntaxError, evaluation.PlanningError) as problem:
        return f"compilation failed: {problem}"
    return ""


def _message(rule: Mapping[str, Any], values: dict[str, Any]) -> str:
    if expression := rule.get("messageExpression"):
        try:
            text = evaluation.cached_expression(expression, _ENVIRONMENT, _TEXT).evaluate(values)
        except evaluation.EvaluationError:
            text = None
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text
    return str(rule.get("message") or f"failed rule: {rule['rule']}")


def _typed(schema: Schema, value: Any) -> Any:
    """A value as rules see it: texts with the format of a time are times."""
    if isinstance(value, str) and (convert := _TIMES.get(schema.get("format") or "")):
        return convert(value)
    if isinstance(value, list) and (items := schema.get("items")):
        return [_typed(items, each) for each in value]
    if isinstance(value, dict):
        named, others = schema.get("properties") or {}, schema.get("additionalProperties")
        rest = others if isinstance(others, Mapping) else {}
        return {name: _typed(named.get(name, rest), each) for name, each in value.items()}
    return value


def _type(schema: Schema) -> str:
    return str(schema.get("type") or "object")
