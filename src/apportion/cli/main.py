"""The command `apportion`: one table of commands, each imported only when it is called.

Planes pull in gRPC, numpy or the embedded server; `apportion --help` must not. So the group knows every
command by name, help line and place, and loads the place on demand.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from apportion import __version__

if TYPE_CHECKING:
    from collections.abc import Callable


class Place(NamedTuple):
    """Where a command lives: `module:attribute` and its line in the overview."""

    target: str
    help: str


COMMANDS = {
    "up": Place("apportion.cli.up:up", "Start an embedded cluster with emulated GPUs and all planes."),
    "down": Place("apportion.cli.up:down", "Stop an embedded cluster and remove what it left."),
    "demo": Place(
        "apportion.cli.demo.command:command", "Play the story: slices made, waited for, freed, on an embedded cluster."
    ),
    "nvidia-smi": Place("apportion.cli.smi:app", "Show the emulated GPUs of a node as nvidia-smi does."),
    "why": Place("apportion.cli.why:command", "Say why a pod waits, and the cheapest change that would help."),
    "top": Place("apportion.cli.top:command", "Every GPU with its slices and pods, and who waits, live."),
    "snapshot": Place("apportion.cli.snapshot:command", "Save the fleet and who waits as a file."),
    "lab": Place("apportion.cli.lab:app", "Benchmarks and trace replays of the placement core."),
    "webhook": Place("apportion.cli.webhook:command", "Plane: admission webhook."),
    "certs": Place("apportion.cli.certs:command", "New certificates for a webhook that runs."),
    "scheduler": Place("apportion.cli.scheduler:command", "Plane: scheduler for slices, shares and whole GPUs."),
    "node": Place("apportion.cli.node:command", "Plane: node agent (device plugins, slices, CDI)."),
    "simulator": Place("apportion.cli.simulator:command", "Plane: one log of all emulated GPUs."),
    "operator": Place("apportion.cli.operator:command", "Plane: watches over the others and reports their state."),
}


class LazyGroup(TyperGroup):
    """Lists commands from the table; imports one only to run it or to show its own help."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  the signature is the library's
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        if ctx.resilient_parsing or _overview_wanted():
            return _stub(cmd_name, place)
        return _load(cmd_name, place)


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Apportion: one GPU layer for Kubernetes. It slices, shares, queues, falls back, explains and simulates.",
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
    app()


def _overview_wanted() -> bool:
    """Nothing but the overview is asked for: no first argument, or a help flag in its place."""
    return len(sys.argv) < 2 or sys.argv[1] in ("--help", "-h")  # noqa: PLR2004  argv[0] and the command


def _load(name: str, place: Place) -> Any:
    module, attribute = place.target.split(":")
    loaded: Any = getattr(importlib.import_module(module), attribute)
    if isinstance(loaded, typer.Typer):
        command = typer.main.get_command(loaded)
        command.name = name
        return command
    return _command(name, loaded, place.help)


def _stub(name: str, place: Place) -> Any:
    def nothing() -> None: ...

    return _command(name, nothing, place.help)


def _command(name: str, function: Callable[..., None], overview: str) -> Any:
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, help=function.__doc__ or overview, short_help=overview)(function)
    command = typer.main.get_command(single)
    command.name = name
    return command


if __name__ == "__main__":
    main()
