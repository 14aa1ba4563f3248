"""The command `apportion`: a table of commands, each imported only when it is called.

Planes import gRPC, numpy or the embedded server; `apportion --help` must not. So the table has the name, the
help line and the location of every command, and a command is loaded on demand.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from apportion import __version__

if TYPE_CHECKING:
    from collections.abc import Callable


FAILURE = 1


class Location(NamedTuple):
    """Where a command is defined (`module:attribute`), and its line in the overview."""

    target: str
    help: str


COMMANDS = {
    "up": Location("apportion.cli.up:up", "Start an embedded cluster with emulated GPUs and all components."),
    "down": Location("apportion.cli.down:down", "Stop an embedded cluster and delete its files."),
    "demo": Location("apportion.cli.demo.command:command", "Demonstrate MIG slices on an embedded cluster."),
    "nvidia-smi": Location("apportion.cli.smi:app", "Run nvidia-smi for the emulated GPUs of a node."),
    "why": Location("apportion.cli.why:command", "Explain why a pod is pending, and suggest the cheapest change."),
    "top": Location("apportion.cli.top:command", "Show GPUs with their slices and pods, and pending pods, live."),
    "queues": Location("apportion.cli.queues:command", "Show the tree of queues: quota, fair share and use."),
    "snapshot": Location(
        "apportion.cli.snapshot:command", "Save the state of the fleet and the pending pods to a file."
    ),
    "lab": Location("apportion.cli.lab:app", "Scenarios, fair shares, benchmarks and trace replays of the core."),
    "webhook": Location("apportion.cli.webhook:command", "Run the admission webhook."),
    "certs": Location("apportion.cli.certs:command", "Issue new certificates for a running webhook."),
    "scheduler": Location("apportion.cli.scheduler:command", "Run the scheduler for slices and whole GPUs."),
    "binder": Location("apportion.cli.binder:command", "Run the binder for pods that share GPUs."),
    "node": Location("apportion.cli.node:command", "Run the node agent (device plugins, slices, CDI)."),
    "simulator": Location(
        "apportion.cli.simulator:command", "Run the GPU simulator (labels nodes, logs emulated GPUs)."
    ),
    "reserve": Location("apportion.cli.reserve:command", "Hold one GPU that pods share (reservation pods run it)."),
    "operator": Location(
        "apportion.cli.operator:command", "Run the operator (configures the components, reports status)."
    ),
}


class LazyGroup(TyperGroup):
    """Lists commands from the table; imports a command only to run it or to show its help."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  the signature is the library's
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        location = COMMANDS.get(cmd_name)
        if location is None:
            return None
        if ctx.resilient_parsing or _overview_wanted():
            return _stub(cmd_name, location)
        return _load(cmd_name, location)


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Apportion: a GPU layer for Kubernetes. Dynamic MIG slices, fallback to smaller profiles, explanations for "
    "pending pods, emulated GPUs.",
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  the signature is the library's
    if wanted:
        typer.echo(f"apportion {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point. What the terminal cannot show, and output that nobody takes, is no reason for a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_output()
        sys.exit(FAILURE)
    except OSError as error:
        _abandon_output()
        named = f"{error.filename}: " if error.filename else ""
        print(f"apportion: {named}{error.strerror or error}", file=sys.stderr)  # noqa: T201
        sys.exit(FAILURE)


def _abandon_output() -> None:
    """The interpreter flushes standard output at its end, and would report once more that it cannot."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _overview_wanted() -> bool:
    """Only the overview is requested: no argument, or a help flag as the first one."""
    return len(sys.argv) < 2 or sys.argv[1] in ("--help", "-h")  # noqa: PLR2004  argv[0] and the command


def _load(name: str, location: Location) -> Any:
    module, attribute = location.target.split(":")
    loaded: Any = getattr(importlib.import_module(module), attribute)
    if isinstance(loaded, typer.Typer):
        command = typer.main.get_command(loaded)
        command.name = name
        return command
    return _command(name, loaded, location.help)


def _stub(name: str, location: Location) -> Any:
    def nothing() -> None: ...

    return _command(name, nothing, location.help)


def _command(name: str, function: Callable[..., None], overview: str) -> Any:
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, help=function.__doc__ or overview, short_help=overview)(function)
    command = typer.main.get_command(single)
    command.name = name
    return command


if __name__ == "__main__":
    main()
