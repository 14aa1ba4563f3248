"""The first process of a sandbox: sets up its network, takes in orphans, and ends when its pipe closes.

Runs alone (no imports of ours): it is process 1 of a process namespace, and the kernel ends all others with it.
"""

from __future__ import annotations

import os
import select
import subprocess

SERVICE_ADDRESS = "10.96.0.1"


def main() -> None:
    for command in (
        "ip link set lo up",
        # The bridge exists for its addresses alone; the API server binds to the first of the service range.
        "ip link add service0 type bridge",
        "ip link set service0 up",
        f"ip address add {SERVICE_ADDRESS}/32 dev service0",
    ):
        subprocess.run(command.split(), check=True)
    os.write(1, b"ready\n")
    while not _closed(pause=0.2):
        _take_in_orphans()


def _closed(*, pause: float) -> bool:
    readable, _, _ = select.select([0], [], [], pause)
    return bool(readable) and not os.read(0, 1)


def _take_in_orphans() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main()
