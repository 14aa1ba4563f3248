"""Python modules as processes that take nothing from their surroundings.

An isolated interpreter (`-I`) reads no PYTHON variables, no user site and no current folder, so nothing that others
can write is imported. It still has to find this installation, which may be a source tree: the folders of our own
module path are handed to it.
"""

from __future__ import annotations

import sys
from pathlib import Path

_RUN = "import runpy, sys; sys.path[1:1] = {paths!r}; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"


def isolated(module: str) -> tuple[str, ...]:
    """The command that runs a module as `python -m` does."""
    return (sys.executable, "-I", "-c", _RUN.format(paths=module_path(), module=module))


def module_path() -> list[str]:
    """Our own module path without the current folder, which `python -m` puts there."""
    ours = Path(__file__).resolve().parents[3]  # the folder with this package
    others = [path for path in sys.path if Path(path).is_absolute() and Path(path) != Path.cwd()]
    return list(dict.fromkeys([str(ours), *others]))
