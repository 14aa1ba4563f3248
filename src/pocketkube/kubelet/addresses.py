"""Addresses for pods and nodes, all on the loopback device so that child processes can listen on them.

Several clusters may run on one machine: each takes a block of its own, held by an abstract socket that the kernel
frees with the process.
"""

from __future__ import annotations

import contextlib
import socket
import sys

FIRST_BLOCK, LAST_BLOCK = 77, 199
_LAST = 254


class NoAddressError(Exception):
    """All addresses are in use."""


class Addresses:
    """The blocks 127.B.0.0/16 of one cluster: nodes from the top, pods from the bottom, each unique."""

    def __init__(self) -> None:
        self.block, self._lock = _reserve()
        self._next_pod = 0
        self._next_node = 0
        self._used: set[str] = set()

    def for_pod(self) -> str:
        """An address nobody has; one that was given back comes round again as late as possible."""
        for _ in range(_POD_ADDRESSES):
            address = _pod_address(self.block, self._next_pod)
            self._next_pod = (self._next_pod + 1) % _POD_ADDRESSES
            if address not in self._used:
                self._used.add(address)
                return address
        raise NoAddressError(f"all {_POD_ADDRESSES} pod addresses of this cluster are in use")

    def give_back(self, address: str) -> None:
        self._used.discard(address)

    def for_node(self) -> str:
        address = _node_address(self.block, self._next_node)
        self._next_node += 1
        return address

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


_POD_ROWS = 216  # of 256; the rest is for nodes
_POD_ADDRESSES = _POD_ROWS * _LAST


def _pod_address(block: int, number: int) -> str:
    row, column = divmod(number, _LAST)
    return f"127.{block}.{row}.{column + 1}"


def _node_address(block: int, number: int) -> str:
    row, column = divmod(number, _LAST)
    return f"127.{block}.{_POD_ROWS + row % (256 - _POD_ROWS)}.{column + 1}"


def _reserve() -> tuple[int, socket.socket | None]:
    if sys.platform != "linux":
        return FIRST_BLOCK, None
    for block in range(FIRST_BLOCK, LAST_BLOCK + 1):
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            lock.bind(f"\0apportion-127.{block}")
            return block, lock
        lock.close()
    raise NoAddressError("no address block is free: too many embedded clusters run on this machine")
