"""Text for logs, in which values from outside cannot forge anything.

Names, annotations and messages of others reach log lines: a line break in one of them would start a line that looks
like ours, and an escape sequence could rewrite a terminal. So a line never contains characters that do not print. A
value of a `key=value` pair is quoted unless it is a plain word.
"""

from __future__ import annotations

import json
import logging
import re

LONGEST = 8000
_PLAIN = re.compile(r"[A-Za-z0-9_.:/+>,-]+", re.ASCII)


def one_line(text: str) -> str:
    """The same text without line breaks and other characters that do not print, shortened if it is very long."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}... ({len(text) - LONGEST} more characters)"
    return text if text.isprintable() else "".join(map(_escaped, text))


def word(value: object) -> str:
    """A value as it stands if it is a plain word, otherwise in quotes."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


class OneLineFormatter(logging.Formatter):
    """One line per message. The lines of a traceback are indented, so that none of them looks like a message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the name that logging gives it
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"    {one_line(line)}" for line in lines)


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
