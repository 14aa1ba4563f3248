"""`$((...))`: whole numbers of 64 bits, as every shell has them, so no expression grows without end."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

_LONGEST = 512  # characters; the parser of expressions is recursive
_BITS = 64
_DIGITS = 19

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda left, right: pow(left, right, 1 << _BITS) if right >= 0 else 0,
}


def evaluate(expression: str, env: Mapping[str, str]) -> int:
    """The value; 0 for what is no expression."""
    if len(expression) > _LONGEST:
        return 0
    try:
        return _value(ast.parse(expression.replace("$", "").strip(), mode="eval").body, env)
    except (SyntaxError, ValueError, ArithmeticError, KeyError, RecursionError, MemoryError):
        return 0


def _value(node: ast.expr, env: Mapping[str, str]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return _wrapped(node.value)
    if isinstance(node, ast.Name):
        text = env.get(node.id, "0") or "0"
        return _wrapped(int(text)) if len(text) <= _DIGITS + 1 else 0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _wrapped(-_value(node.operand, env))
    if isinstance(node, ast.BinOp):
        return _wrapped(_OPERATIONS[type(node.op)](_value(node.left, env), _value(node.right, env)))
    raise ValueError(ast.dump(node))


def _wrapped(number: int) -> int:
    half = 1 << (_BITS - 1)
    return (number + half) % (1 << _BITS) - half
