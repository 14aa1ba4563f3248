"""URLs as values of CEL: `url('https://example.com:80/a?b=c').getHost()`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

from pocketkube.api.expressions.functions import EvaluationError, Function, no_function, no_overload

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f]")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\[\]:/?#<>\"\\^`{|}]*)(?::[0-9]*)?")
_LITERAL_IN_PATHS = "/:@!$&'()*+,;=-._~%"


@dataclass(frozen=True, slots=True)
class Url:
    parts: SplitResult

    @property
    def host(self) -> str:
        return self.parts.netloc.rpartition("@")[2]

    @property
    def hostname(self) -> str:
        if self.host.startswith("["):
            return self.host[1:].partition("]")[0]
        return self.host.partition(":")[0]

    @property
    def port(self) -> str:
        return self.host.rpartition("]")[2].partition(":")[2]


def parse(text: Any) -> Url:
    """An absolute URL, or an absolute path."""
    if not isinstance(text, str):
        raise no_function("url", text)
    if not text.startswith("/") and not _SCHEME.match(text):
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": invalid URI for request')
    try:
        found = Url(urlsplit(text))
    except ValueError as problem:
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": {problem}') from None
    if _FORBIDDEN.search(text) or not _HOST.fullmatch(found.host):
        why = "invalid control character in URL" if _FORBIDDEN.search(text) else "invalid character in host name"
        raise EvaluationError(f'URL parse error during conversion from string: parse "{text}": {why}')
    return found


def _is_url(text: Any) -> bool:
    try:
        parse(text)
    except EvaluationError:
        return False
    return True


def _method(name: str, function: Function) -> Function:
    def guarded(target: Any) -> Any:
        if not isinstance(target, Url):
            raise no_overload(name, target)
        return function(target)

    return guarded


FUNCTIONS: dict[tuple[str, int], Function] = {("url", 1): parse, ("isURL", 1): _is_url}
METHODS: dict[tuple[str, int], Function] = {
    ("getScheme", 1): _method("getScheme", lambda url: url.parts.scheme),
    ("getHost", 1): _method("getHost", lambda url: url.host),
    ("getHostname", 1): _method("getHostname", lambda url: url.hostname),
    ("getPort", 1): _method("getPort", lambda url: url.port),
    ("getEscapedPath", 1): _method("getEscapedPath", lambda url: quote(url.parts.path, safe=_LITERAL_IN_PATHS)),
    ("getQuery", 1): _method("getQuery", lambda url: parse_qs(url.parts.query, keep_blank_values=True)),
}
