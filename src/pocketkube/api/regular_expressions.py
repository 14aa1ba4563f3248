"""Regular expressions from objects: RE2, whose matching is linear in the text whatever the expression."""

from __future__ import annotations

import functools
from typing import Any

import re2

_MEMORY = 2 * 1024 * 1024  # bytes of one compiled expression


class PatternError(ValueError):
    """A text that is no regular expression, or too large a one."""


@functools.lru_cache(maxsize=128)
def compiled(pattern: str) -> Any:
    """An expression with the methods of `re.Pattern`."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as problem:
        text = problem.args[0]
        raise PatternError(text.decode(errors="replace") if isinstance(text, bytes) else str(problem)) from None
