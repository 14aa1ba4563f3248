"""Compiles Python files ahead of time, so that a container does not do it at every start.

The compiled files carry no time stamps: the image is the same whenever it is made. They are made only where this
program itself runs on the image's Python version; elsewhere the image is slower to start and otherwise the same.
"""

from __future__ import annotations

import compileall
import sys
from pathlib import Path
from py_compile import PycInvalidationMode


def compile_tree(folder: Path) -> None:
    if sys.version_info[:2] != (3, 11):
        return
    compileall.compile_dir(
        folder,
        quiet=2,
        workers=0,
        stripdir=str(folder),
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )
