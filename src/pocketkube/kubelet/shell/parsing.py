"""From the text of a script to its syntax."""

from __future__ import annotations

import re
from collections.abc import Callable

from pocketkube.kubelet.shell.syntax import (
    Chain,
    Command,
    For,
    Group,
    If,
    Number,
    Output,
    Part,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Text,
    Variable,
    While,
    Word,
)


class ShellSyntaxError(ValueError):
    """A script that this shell does not understand."""


_OPERATOR = re.compile(r"&&|\|\||;;|[;&|()\n]")
_REDIRECT = re.compile(r"(\d?)(>>|>&|>|<)")
_VARIABLE = re.compile(r"[A-Za-z_]\w*|[?#@*$!0-9]")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)

Token = str | Word | Redirect
DEEPEST = 60  # commands in commands: each level is several calls of this parser, and of what runs the script


def parse(text: str, depth: int = 0) -> Script:
    """The whole script; commands in last place are marked as final."""
    if depth > DEEPEST:
        raise ShellSyntaxError("commands are nested too deeply")
    tokens = _Lexer(text, depth).tokens()
    parser = _ShellParser(tokens, depth)
    script = parser.script(())
    if parser.peek() is not None:
        raise ShellSyntaxError(f"unexpected {parser.peek()!r}")
    _mark_final(script)
    return script


def _mark_final(script: Script) -> None:
    if not script.chains:
        return
    chain = script.chains[-1]
    pipeline = chain.rest[-1][1] if chain.rest else chain.first
    for command in pipeline.commands:
        if isinstance(command, Simple):
            command.final = True
        elif isinstance(command, Group):
            _mark_final(command.body)
        elif isinstance(command, If):
            for body in [body for _, body in command.branches] + ([command.otherwise] if command.otherwise else []):
                _mark_final(body)


class _Lexer:
    """Splits a text into operators, redirects and words."""

    def __init__(self, text: str, depth: int) -> None:
        self.text = text.replace("\\\n", "")
        self.at = 0
        self._depth = depth

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        while True:
            self._skip_blank()
            if self.at >= len(self.text):
                return found
            redirect = _REDIRECT.match(self.text, self.at)
            operator = _OPERATOR.match(self.text, self.at)
            if redirect:
                found.append(self._redirect(redirect))
            elif operator:
                self.at = operator.end()
                found.append(";" if operator[0] == "\n" else operator[0])
            else:
                found.append(self._word())

    def _skip_blank(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] in " \t\r":
                self.at += 1
            elif self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def _redirect(self, match: re.Match[str]) -> Redirect:
        self.at = match.end()
        mode = match[2]
        stream = int(match[1]) if match[1] else (0 if mode == "<" else 1)
        self._skip_blank()
        return Redirect(stream, "&" if mode == ">&" else mode, self._word())

    def _word(self) -> Word:
        parts: list[Part] = []
        while self.at < len(self.text) and self.text[self.at] not in " \t\r\n;&|()<>":
            char = self.text[self.at]
            if char == "'":
                parts.append(Text(self._until("'"), quoted=True))
            elif char == '"':
                parts += self._double_quoted()
            elif char == "\\":
                parts.append(Text(self.text[self.at + 1 : self.at + 2], quoted=True))
                self.at += 2
            elif char in "$`":
                parts.append(self._expansion(quoted=False))
            else:
                parts.append(self._plain(" \t\r\n;&|()<>'\"\\$`"))
        return tuple(parts)

    def _plain(self, stops: str) -> Text:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in stops:
            self.at += 1
        return Text(self.text[start : self.at])

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise ShellSyntaxError(f"unterminated quoted string: {quote} is missing")
        text = self.text[self.at + 1 : end]
        self.at = end + 1
        return text

    def _double_quoted(self) -> list[Part]:
        self.at += 1
        parts: list[Part] = [Text("", quoted=True)]
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in tuple('"\\$`'):
                parts.append(Text(self.text[self.at + 1], quoted=True))
                self.at += 2
            elif char == "\\":
                parts.append(Text("\\", quoted=True))
                self.at += 1
            elif char in "$`":
                parts.append(self._expansion(quoted=True))
            else:
                parts.append(Text(self._plain('"\\$`').text, quoted=True))
        if self.at >= len(self.text):
            raise ShellSyntaxError('unterminated quoted string: " is missing')
        self.at += 1
        return parts

    def _expansion(self, *, quoted: bool) -> Part:
        if self.text[self.at] == "`":
            return Output(parse(self._until("`"), self._depth + 1), quoted)
        if self.text.startswith("((", self.at + 1):
            return Number(self._nested("((", "))"))
        if self.text.startswith("(", self.at + 1):
            return Output(parse(self._nested("(", ")"), self._depth + 1), quoted)
        if self.text.startswith("{", self.at + 1):
            name, given, default = self._nested("{", "}").partition(":-")
            return Variable(name, default if given else None, quoted)
        return self._plain_variable(quoted=quoted)

    def _plain_variable(self, *, quoted: bool) -> Part:
        match = _VARIABLE.match(self.text, self.at + 1)
        self.at = match.end() if match else self.at + 1
        return Variable(match[0], None, quoted) if match else Text("$", quoted)

    def _nested(self, opening: str, closing: str) -> str:
        """The text between `$` + opening and its closing, brackets inside counted."""
        start = at = self.at + 1 + len(opening)
        depth = 1
        while at < len(self.text):
            if self.text.startswith(closing, at) and depth == 1:
                self.at = at + len(closing)
                return self.text[start:at]
            if self.text[at] == opening[0]:
                depth += 1
            elif self.text[at] == closing[0]:
                depth -= 1
            at += 1
        raise ShellSyntaxError(f"{closing} is missing")


class _ShellParser:
    def __init__(self, tokens: list[Token], depth: int) -> None:
        self.tokens = tokens
        self.at = 0
        self._depth = depth

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def keyword(self) -> str:
        """The next token if it is a plain unquoted word or an operator, for comparing with reserved words."""
        token = self.peek()
        if isinstance(token, str):
            return token
        if isinstance(token, tuple) and len(token) == 1 and isinstance(token[0], Text) and not token[0].quoted:
            return token[0].text
        return ""

    def expect(self, word: str) -> None:
        if self.keyword() != word:
            raise ShellSyntaxError(f'syntax error: "{word}" is missing')
        self.at += 1

    def script(self, ends: tuple[str, ...]) -> Script:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ShellSyntaxError("commands are nested too deeply")
        script = self._chains(ends)
        self._depth -= 1
        return script

    def _chains(self, ends: tuple[str, ...]) -> Script:
        script = Script()
        while True:
            while self.keyword() == ";" and self.peek() == ";":
                self.at += 1
            if self.peek() is None or self.keyword() in ends:
                return script
            chain = self._chain()
            script.chains.append(chain)
            if self.peek() == "&":
                chain.background = True
                self.at += 1
            elif self.peek() == ";":
                self.at += 1
            elif self.peek() is not None and self.keyword() not in ends:
                raise ShellSyntaxError(f'syntax error near "{self.keyword()}"')

    def _chain(self) -> Chain:
        chain = Chain(self._pipeline())
        while self.peek() in ("&&", "||"):
            operator = self.keyword()
            self.at += 1
            self._skip_newlines()
            chain.rest.append((operator, self._pipeline()))
        return chain

    def _skip_newlines(self) -> None:
        while self.peek() == ";":
            self.at += 1

    def _pipeline(self) -> Pipeline:
        negated = self.keyword() == "!"
        if negated:
            self.at += 1
        commands = [self._command()]
        while self.peek() == "|":
            self.at += 1
            self._skip_newlines()
            commands.append(self._command())
        return Pipeline(commands, negated)

    def _command(self) -> Command:
        compound: dict[str, Callable[[], Command]] = {
            "while": self._while,
            "until": self._while,
            "for": self._for,
            "if": self._if,
            "{": self._group,
            "(": self._group,
        }
        make = compound.get(self.keyword())
        return make() if make else self._simple()

    def _while(self) -> Command:
        until = self.keyword() == "until"
        self.at += 1
        condition = self.script(("do",))
        return While(condition, self._do_body(), until)

    def _for(self) -> Command:
        self.at += 1
        name = self.keyword()
        self.at += 1
        words: list[Word] = []
        if self.keyword() == "in":
            self.at += 1
            while isinstance(self.peek(), tuple):
                words.append(self._take_word())
        self._skip_newlines()
        return For(name, words, self._do_body())

    def _do_body(self) -> Script:
        self.expect("do")
        body = self.script(("done",))
        self.expect("done")
        return body

    def _if(self) -> Command:
        branches: list[tuple[Script, Script]] = []
        otherwise: Script | None = None
        while self.keyword() in ("if", "elif"):
            self.at += 1
            condition = self.script(("then",))
            self.expect("then")
            branches.append((condition, self.script(("elif", "else", "fi"))))
        if self.keyword() == "else":
            self.at += 1
            otherwise = self.script(("fi",))
        self.expect("fi")
        return If(branches, otherwise)

    def _group(self) -> Command:
        closing = "}" if self.keyword() == "{" else ")"
        self.at += 1
        body = self.script((closing,))
        self.expect(closing)
        group = Group(body)
        while isinstance(token := self.peek(), Redirect):
            group.redirects.append(token)
            self.at += 1
        return group

    def _simple(self) -> Simple:
        command = Simple()
        while True:
            token = self.peek()
            if isinstance(token, Redirect):
                command.redirects.append(token)
                self.at += 1
            elif isinstance(token, tuple):
                word = self._take_word()
                assignment = None if command.words else _assignment(word)
                if assignment:
                    command.assignments.append(assignment)
                else:
                    command.words.append(word)
            else:
                break
        if not (command.words or command.assignments or command.redirects):
            raise ShellSyntaxError(f'syntax error near "{self.keyword() or "end of script"}"')
        return command

    def _take_word(self) -> Word:
        token = self.peek()
        assert isinstance(token, tuple)
        self.at += 1
        return token


def _assignment(word: Word) -> tuple[str, Word] | None:
    if not word or not isinstance(word[0], Text) or word[0].quoted:
        return None
    match = _ASSIGNMENT.fullmatch(word[0].text)
    if match is None:
        return None
    return match[1], (Text(match[2], quoted=True), *word[1:])
