"""How large a topology can be: checked before anything is built for its nodes and GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from apportion.emulation.gpus.inventory import LARGEST_COUNT

MOST_NODES = 10_000  # of all pools
MOST_FULL_NODES = 500  # those that are not light: each has a kubelet with sockets and folders
MOST_BYTES = 1024 * 1024  # of a topology file
MOST_ALIASES = 1_000  # of YAML: each repeats a part of the file


class LimitExceeded(ValueError):
    """A number that is too large; the text names the field, the value and the limit."""


class _Gpus(Protocol):
    count: int


class _Pool(Protocol):
    nodes: int
    light: bool

    @property
    def gpus(self) -> Sequence[_Gpus]: ...


def check(pools: Sequence[_Pool], source: str) -> None:
    """Raises LimitExceeded."""
    nodes = full = 0
    for position, pool in enumerate(pools):
        where = f"{source}: pools[{position}]"
        nodes += pool.nodes
        full += 0 if pool.light else pool.nodes
        _at_most(f"{where}.nodes", pool.nodes, nodes, MOST_NODES, "nodes in all pools")
        advice = "nodes that are not light in all pools (add `light: true` for more)"
        _at_most(f"{where}.nodes", pool.nodes, full, MOST_FULL_NODES, advice)
        gpus = 0
        for index, entry in enumerate(pool.gpus):
            gpus += entry.count
            _at_most(f"{where}.gpus[{index}].count", entry.count, gpus, LARGEST_COUNT, "GPUs in one node")


def check_file(path: str, text: str) -> None:
    if len(text) > MOST_BYTES:
        raise LimitExceeded(f"{path}: has {len(text)} characters: a topology has at most {MOST_BYTES}")
    if text.count("*") > MOST_ALIASES:
        raise LimitExceeded(f"{path}: has more than {MOST_ALIASES} YAML aliases: write the parts out")


def _at_most(field: str, value: int, total: int, most: int, what: str) -> None:
    if total > most:
        raise LimitExceeded(f"{field}: {value} is too large: use at most {most} {what}")
