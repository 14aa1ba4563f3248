"""The process `apportion`.

`apportion reserve` runs once for every shared GPU and only waits there, so it loads no library for command lines.
Everything else is a command of `cli`.
"""

from __future__ import annotations

import sys


def main() -> None:
    if sys.argv[1:] == ["reserve"]:
        from apportion.reserve import process

        process.main()
    else:
        from apportion.cli import main as commands

        commands.main()


if __name__ == "__main__":
    main()
