"""Reading the Common Expression Language: text to a tree of nodes.

Precedence climbing over the grammar of the language definition. Macros (`has`, `all`, `exists` ...) are
recognised here because they bind names. What the grammar allows but no evaluator of ours knows (construction of
messages) is refused with a position, as is nesting that could exhaust the stack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

DEEPEST = 64
LONGEST = 64 * 1024

# Macros that go through a list or a map: how many arguments they take, and how many of them are names.
_COMPREHENSIONS = {
    ("all", 2): 1,
    ("exists", 2): 1,
    ("exists_one", 2): 1,
    ("existsOne", 2): 1,
    ("filter", 2): 1,
    ("map", 2): 1,
    ("map", 3): 1,
    ("all", 3): 2,
    ("exists", 3): 2,
    ("exists_one", 3): 2,
    ("existsOne", 3): 2,
    ("transformList", 3): 2,
    ("transformList", 4): 2,
    ("transformMap", 3): 2,
    ("transformMap", 4): 2,
    ("transformMapEntry", 3): 2,
    ("transformMapEntry", 4): 2,
}
_OPTIONAL_MACROS = ("optMap", "optFlatMap")
_PRIMARIES = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 3),
    **dict.fromkeys("+-", 4),
    **dict.fromkeys("*/%", 5),
}
_RESERVED = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package"}
    | {"namespace", "return", "var", "void", "while"}
)
_TOKEN = re.compile(
    r"""
      (?P<space>\s+|//[^\n]*)
    | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    | (?P<int>0[xX][0-9a-fA-F]+[uU]?|[0-9]+[uU]?)
    | (?P<string>[bB]?[rR]?(?:
          \"\"\"(?:\\.|[^\\])*?\"\"\" | '''(?:\\.|[^\\])*?''' | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
      ))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<operator>\|\||&&|<=|>=|==|!=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_SIMPLE_ESCAPES = {
    **dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)),
    **{character: character for character in "\\?\"'`"},
}


class CelSyntaxError(ValueError):
    """Text that is no expression, or one that cannot be evaluated here."""

    def __init__(self, message: str, text: str, at: int) -> None:
        super().__init__(_located(message, text, at))


class CelTypeErrors(CelSyntaxError):
    """Everything that is wrong with the names and types of an expression, in the order of the text."""

    def __init__(self, problems: list[tuple[int, str]], text: str) -> None:
        ordered = sorted(problems, key=lambda problem: problem[0])
        ValueError.__init__(self, "\n".join(_located(message, text, at) for at, message in ordered))


def _located(message: str, text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    start = text.rfind("\n", 0, at) + 1
    column = at - start + 1
    shown = text[start:].partition("\n")[0]
    return f"ERROR: <input>:{line}:{column}: {message}\n | {shown}\n | {'.' * (column - 1)}^"


class UInt(int):
    """An unsigned number, which is another type than a number of the same value."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ExpressionNode:
    """A piece of an expression and where it begins."""

    at: int


@dataclass(frozen=True, slots=True)
class Literal(ExpressionNode):
    value: Any


@dataclass(frozen=True, slots=True)
class Name(ExpressionNode):
    name: str


@dataclass(frozen=True, slots=True)
class Select(ExpressionNode):
    """`of.field`; `test` is the form inside has()."""

    of: ExpressionNode
    field: str
    test: bool = False
    optional: bool = False  # `of.?field`


@dataclass(frozen=True, slots=True)
class Index(ExpressionNode):
    of: ExpressionNode
    key: ExpressionNode
    optional: bool = False  # `of[?key]`


@dataclass(frozen=True, slots=True)
class FunctionCall(ExpressionNode):
    """A function, an operator or, with a target, a method."""

    name: str
    arguments: tuple[ExpressionNode, ...]
    target: ExpressionNode | None = None


@dataclass(frozen=True, slots=True)
class Logic(ExpressionNode):
    """All of (`&&`) or one of (`||`) some parts."""

    every: bool
    parts: tuple[ExpressionNode, ...]


@dataclass(frozen=True, slots=True)
class Choice(ExpressionNode):
    condition: ExpressionNode
    yes: ExpressionNode
    no: ExpressionNode


class Item(NamedTuple):
    """An item of a list. An optional one is left out if it has no value."""

    value: ExpressionNode
    optional: bool


class Entry(NamedTuple):
    """An entry of a map. An optional one is left out if it has no value."""

    key: ExpressionNode
    value: ExpressionNode
    optional: bool


@dataclass(frozen=True, slots=True)
class ListOf(ExpressionNode):
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class MapOf(ExpressionNode):
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Comprehension(ExpressionNode):
    """A macro over a list or a map: `over.kind(name, step)`, perhaps with a second name and with a filter.

    One name stands for the items of a list or the keys of a map, two for positions and items, or keys and values.
    """

    kind: str
    over: ExpressionNode
    names: tuple[str, ...]
    step: ExpressionNode
    where: ExpressionNode | None = None


@dataclass(frozen=True, slots=True)
class OptionalMacro(ExpressionNode):
    """`over.optMap(name, step)`: the step for the value of an optional that has one."""

    over: ExpressionNode
    name: str
    step: ExpressionNode
    flat: bool  # the step is optional itself


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse(text: str) -> ExpressionNode:
    """The tree of an expression; raises CelSyntaxError."""
    if len(text) > LONGEST:
        raise CelSyntaxError(f"the expression is longer than {LONGEST} characters", text[:80], 0)
    return _Parser(text).whole()


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            if text[at] == "`":
                raise CelSyntaxError("unsupported syntax: '`'", text, at)
            raise CelSyntaxError(f"Syntax error: token recognition error at: '{text[at]}'", text, at)
        if match.lastgroup and match.lastgroup != "space":
            found.append(_Token(match.lastgroup, match[0], at))
        at = match.end()
    found.append(_Token("end", "<EOF>", len(text)))
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def whole(self) -> ExpressionNode:
        node = self._expression()
        if self._peek().kind != "end":
            raise self._error(f"Syntax error: extraneous input '{self._peek().text}' expecting <EOF>")
        return node

    def _expression(self) -> ExpressionNode:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._error(f"the expression is nested more than {DEEPEST} deep")
        node = self._binary(1)
        at = self._peek().at
        if self._accept("?"):
            yes = self._binary(1)
            self._expect(":")
            node = Choice(at, node, yes, self._expression())
        self._depth -= 1
        return node

    def _binary(self, lowest: int) -> ExpressionNode:
        left = self._unary()
        length = 0
        while (level := _PRECEDENCE.get(self._peek().text, 0)) >= lowest and self._peek().kind in ("operator", "name"):
            token = self._advance()
            right = self._binary(level + 1)
            if token.text in ("&&", "||"):
                left = _joined(token, left, right)
                continue
            length += 1
            if length > DEEPEST:
                raise self._error(f"more than {DEEPEST} operators in a row")
            left = FunctionCall(token.at, token.text, (left, right))
        return left

    def _unary(self) -> ExpressionNode:
        token = self._peek()
        if token.text in ("!", "-") and token.kind == "operator":
            repeated = 0
            while self._accept(token.text):
                repeated += 1
            node = self._member()
            if repeated % 2 == 0:
                return node
            if token.text == "-" and isinstance(node, Literal) and type(node.value) in (int, float):
                return Literal(token.at, -node.value)
            return FunctionCall(token.at, "!_" if token.text == "!" else "-_", (node,))
        return self._member()

    def _member(self) -> ExpressionNode:
        node = self._primary()
        for _ in range(DEEPEST):
            at = self._peek().at
            if self._accept("."):
                node = self._selected(node, at)
            elif self._accept("["):
                optional = self._accept("?")
                key = self._expression()
                self._expect("]")
                node = Index(at, node, key, optional=optional)
            else:
                return node
        raise self._error(f"more than {DEEPEST} selections in a row")

    def _selected(self, node: ExpressionNode, at: int) -> ExpressionNode:
        if self._accept("?"):
            return Select(at, node, self._identifier(), optional=True)
        field = self._identifier()
        called = self._peek().at
        if not self._accept("("):
            return Select(at, node, field)
        arguments = self._arguments(")")
        names = _COMPREHENSIONS.get((field, len(arguments)))
        if names is not None:
            return self._comprehension(node, field, arguments, names, called)
        if field in _OPTIONAL_MACROS and len(arguments) == 2:  # noqa: PLR2004  name and step
            (name,) = self._bound(arguments[:1])
            return OptionalMacro(called, node, name, arguments[1], field == "optFlatMap")
        return FunctionCall(called, field, arguments, node)

    def _comprehension(
        self, over: ExpressionNode, kind: str, arguments: tuple[ExpressionNode, ...], count: int, at: int
    ) -> ExpressionNode:
        names, rest = self._bound(arguments[:count]), arguments[count:]
        return Comprehension(at, kind, over, names, rest[-1], rest[0] if len(rest) > 1 else None)

    def _bound(self, arguments: tuple[ExpressionNode, ...]) -> tuple[str, ...]:
        names: list[str] = []
        for argument in arguments:
            if not isinstance(argument, Name):
                raise CelSyntaxError("argument must be a simple name", self._text, argument.at)
            names.append(argument.name)
        return tuple(names)

    def _primary(self) -> ExpressionNode:  # noqa: PLR0911  one return per form
        token = self._peek()
        if token.kind == "end" or (token.kind == "operator" and token.text not in "([{"):
            raise self._error(f"Syntax error: mismatched input '{token.text}' expecting {_PRIMARIES}")
        self._advance()
        match token.kind:
            case "int":
                return Literal(token.at, self._integer(token))
            case "float":
                return Literal(token.at, float(token.text))
            case "string":
                return Literal(token.at, self._string(token))
            case "name":
                return self._named(token)
        if token.text == "(":
            node = self._expression()
            self._expect(")")
            return node
        if token.text == "[":
            return ListOf(token.at, self._items())
        return MapOf(token.at, self._entries())

    def _named(self, token: _Token) -> ExpressionNode:
        if token.text in ("true", "false", "null"):
            return Literal(token.at, {"true": True, "false": False, "null": None}[token.text])
        if token.text in _RESERVED or token.text == "in":
            raise CelSyntaxError(f"reserved identifier: {token.text}", self._text, token.at)
        at = self._peek().at
        if self._peek().text == "{":
            raise CelSyntaxError(f"undeclared reference to '{token.text}' (in container '')", self._text, at)
        if not self._accept("("):
            return Name(token.at, token.text)
        arguments = self._arguments(")")
        if token.text == "has" and len(arguments) == 1:
            select = arguments[0]
            if not isinstance(select, Select) or select.optional or select.test:
                raise CelSyntaxError("invalid argument to has() macro", self._text, select.at)
            return Select(at, select.of, select.field, test=True)
        return FunctionCall(at, token.text, arguments)

    def _arguments(self, end: str) -> tuple[ExpressionNode, ...]:
        found: list[ExpressionNode] = []
        while not self._accept(end):
            found.append(self._expression())
            if not self._accept(","):
                self._expect(end)
                break
        return tuple(found)

    def _items(self) -> tuple[Item, ...]:
        found: list[Item] = []
        while not self._accept("]"):
            optional = self._accept("?")
            found.append(Item(self._expression(), optional))
            if not self._accept(","):
                self._expect("]")
                break
        return tuple(found)

    def _entries(self) -> tuple[Entry, ...]:
        found: list[Entry] = []
        while not self._accept("}"):
            optional = self._accept("?")
            key = self._expression()
            self._expect(":")
            found.append(Entry(key, self._expression(), optional))
            if not self._accept(","):
                self._expect("}")
                break
        return tuple(found)

    def _identifier(self) -> str:
        if self._peek().kind != "name":
            raise self._unexpected()
        return self._advance().text

    def _integer(self, token: _Token) -> int:
        value = int(token.text.rstrip("uU"), 0 if token.text[:2] in ("0x", "0X") else 10)
        if token.text[-1] in "uU":
            if value >= 2**64:
                raise CelSyntaxError("invalid uint literal", self._text, token.at)
            return UInt(value)
        if value > 2**63:
            raise CelSyntaxError("invalid int literal", self._text, token.at)
        return value

    def _string(self, token: _Token) -> str | bytes:
        body = token.text
        prefix = body[: len(body) - len(body.lstrip("bBrR"))].lower()
        body = body[len(prefix) :]
        quotes = 3 if body[:3] in ('"""', "'''") and len(body) >= 6 else 1  # noqa: PLR2004  two times three
        inner = body[quotes:-quotes]
        if "r" not in prefix:
            inner = _ESCAPE.sub(lambda match: self._unescaped(match, token), inner)
        return inner.encode(errors="replace") if "b" in prefix else inner

    def _unescaped(self, match: re.Match[str], token: _Token) -> str:
        for code, base in ((match[1], 16), (match[2], 16), (match[3], 16), (match[4], 8)):
            if code is not None and int(code, base) <= 0x10FFFF:  # noqa: PLR2004  the last code point
                return chr(int(code, base))
        if match[5] not in _SIMPLE_ESCAPES:
            raise CelSyntaxError("unable to unescape string", self._text, token.at)
        return _SIMPLE_ESCAPES[match[5]]

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _advance(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _accept(self, text: str) -> bool:
        token = self._peek()
        if token.text != text or token.kind not in ("operator", "name"):
            return False
        self._advance()
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected(text)

    def _unexpected(self, wanted: str = "") -> CelSyntaxError:
        if wanted:
            return self._error(f"Syntax error: missing '{wanted}' at '{self._peek().text}'")
        return self._error(f"Syntax error: mismatched input '{self._peek().text}'")

    def _error(self, message: str) -> CelSyntaxError:
        return CelSyntaxError(message, self._text, self._peek().at)


def _joined(token: _Token, left: ExpressionNode, right: ExpressionNode) -> Logic:
    every = token.text == "&&"
    parts: tuple[ExpressionNode, ...] = ()
    for side in (left, right):
        parts += side.parts if isinstance(side, Logic) and side.every is every else (side,)
    return Logic(token.at, every, parts)
