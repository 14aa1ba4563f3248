"""`apportion simulator`: labels nodes with emulated GPUs and logs the GPUs of all nodes."""

from __future__ import annotations

from apportion.cli import options


def command(
    probes: options.Probes = "127.0.0.1:9405",
    log_level: options.PlaneLogLevel = "Normal",
) -> None:
    """Log the emulated GPUs of all nodes, and label nodes with emulated GPUs so that agents run there."""
    from apportion.cluster import process
    from apportion.emulation import simulator

    process.run(lambda: simulator.run(probes), name="simulator", level=log_level)
