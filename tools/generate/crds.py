"""Write the CustomResourceDefinitions into the manifests, out of the types in `apportion.apis`.

python tools/generate/crds.py           write
python tools/generate/crds.py --check   fail if the committed file is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from apportion.apis.custom_resources import crds

TARGET = Path(__file__).parents[2] / "src" / "apportion" / "manifests" / "01-crds.yaml"
HEADER = "# Made by tools/generate/crds.py out of the types in apportion.apis; do not edit.\n"


def rendered() -> str:
    return HEADER + yaml.dump_all(crds.crds(), Dumper=_Plain, sort_keys=False, width=120)


def main() -> int:
    if "--check" in sys.argv[1:]:
        if TARGET.exists() and TARGET.read_text() == rendered():
            return 0
        print(f"{TARGET} is out of date: run python tools/generate/crds.py", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(rendered())
    print(f"wrote {TARGET}")
    return 0


class _Plain(yaml.SafeDumper):
    """YAML without anchors: the same value is written out each time."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  the signature is the library's
        return True


if __name__ == "__main__":
    sys.exit(main())
