"""Python modules as processes that take nothing from their surroundings.

An isolated interpreter (`-I`) reads no PYTHON variables, no user site and no current folder, so nothing that others
can write is imported. It still has to find this installation, which may be a source tree: the folders of our own
module path are handed to it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

# The first three are those of Python itself; after them, an installed package of the same name could be found first.
_RUN = "import runpy, sys; sys.path[3:3] = {paths!r}; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"


def isolated(module: str, *needed: str) -> tuple[str, ...]:
    """The command that runs a module as `python -m` does; it can import the other modules that are needed, too."""
    return (sys.executable, "-I", "-c", _RUN.format(paths=_module_path(module, *needed), module=module))


def _module_path(*modules: str) -> list[str]:
    """Where these modules are, and our own module path without the current folder, which `python -m` puts there."""
    theirs = [folder for module in modules for folder in _folders(module.partition(".")[0])]
    ours = [path for path in sys.path if Path(path).is_absolute() and Path(path) != Path.cwd()]
    return list(dict.fromkeys([*theirs, *ours]))


def _folders(package: str) -> list[str]:
    found = importlib.util.find_spec(package)
    return [str(Path(folder).absolute().parent) for folder in (found and found.submodule_search_locations) or ()]
