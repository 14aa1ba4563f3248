"""Writes the Python stubs of the kubelet's protocols beside their `.proto` files.

Run `python tools/generate/protos.py`; with `--check` it only says whether the committed stubs are
what the `.proto` files give.
"""

from __future__ import annotations

import argparse
import importlib.resources
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROTOS = ("apportion/apis/kubelet/deviceplugin.proto", "apportion/apis/kubelet/podresources.proto")
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = [name for name in stub_names() if not _same(Path(folder) / name, SOURCE / name)]
        if not check:
            for name in stale:
                (SOURCE / name).write_bytes((Path(folder) / name).read_bytes())
    for name in stale:
        print(f"{'differs' if check else 'wrote'}: src/{name}")
    return 1 if check and stale else 0


def generate(target: Path) -> None:
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    code = protoc.main(
        [
            "protoc",
            f"--proto_path={SOURCE}",
            f"--proto_path={well_known}",
            f"--python_out={target}",
            f"--pyi_out={target}",
            f"--grpc_python_out={target}",
            *PROTOS,
        ]
    )
    if code:
        sys.exit(f"protoc ended with code {code}")


def stub_names() -> list[str]:
    return [proto.removesuffix(".proto") + suffix for proto in PROTOS for suffix in SUFFIXES]


def _same(new: Path, old: Path) -> bool:
    return old.exists() and new.read_bytes() == old.read_bytes()


if __name__ == "__main__":
    sys.exit(main())
