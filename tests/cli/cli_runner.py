"""Commands called as the command line calls them, without the cost of a process each."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import typer


async def called(command: Callable[..., None], **options: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error. In a thread: a command runs a loop of its own."""
    return await asyncio.to_thread(_call, command, options)


def _call(command: Callable[..., None], options: dict[str, Any]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            command(**options)
        except typer.Exit as end:
            code = end.exit_code
        except typer.BadParameter as refused:
            code = refused.exit_code
            err.write(refused.format_message())
    return code, out.getvalue(), err.getvalue()
