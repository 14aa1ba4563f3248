"""`apportion nvidia-smi`: the nvidia-smi command for emulated GPUs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from apportion.cli import cluster_files
from apportion.cluster import input_files
from apportion.emulation.nvidia_smi import command as smi
from apportion.emulation.nvidia_smi import script

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

FILE = Path("var/lib/apportion/nvidia-smi")
BAD_INPUT = 2


@app.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
def command(
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Arguments of nvidia-smi: -L, --query-gpu=..., -h")
    ] = None,
    node: Annotated[str, typer.Option(help="Name of the emulated node; optional if there is only one.")] = "",
    name: Annotated[str, typer.Option(help="Name of the embedded cluster; optional if only one is running.")] = "",
    root: Annotated[
        Path | None, typer.Option(help="Root directory of the node instead of --name and --node; `/` on a real node.")
    ] = None,
) -> None:
    """Run nvidia-smi for the emulated GPUs of a node: table, -L, --query-gpu=... --format=csv."""
    machine = script.read(_script(root or _root(name, node)))
    if machine is None:
        raise typer.BadParameter("the agent of this node has not discovered its GPUs yet: try again")
    code, text = smi.run(machine, arguments or [], datetime.now().astimezone())
    typer.echo(text, nl=False)
    raise typer.Exit(code)


def _script(root: Path) -> str:
    try:
        return input_files.text(root / FILE)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "not a script of an agent"
        raise typer.BadParameter(f"{root / FILE}: {said}: no agent is running on this node") from None


def _root(name: str, node: str) -> Path:
    everything = cluster_files.running()
    running = [state for state in everything if state.name == name] if name else everything
    if len(running) != 1:
        listed = ", ".join(state.name for state in everything) or "none"
        raise typer.BadParameter(f"running embedded clusters: {listed}", param_hint="--name")
    nodes = sorted(path.parents[3].name for path in Path(running[0].root).glob(f"*/{FILE}"))
    chosen = node or (nodes[0] if len(nodes) == 1 else "")
    if chosen not in nodes:
        raise typer.BadParameter(f"{node!r}: nodes with GPUs: {', '.join(nodes) or 'none'}", param_hint="--node")
    return Path(running[0].root) / chosen
