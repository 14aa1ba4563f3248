#!/usr/bin/env python3
"""Makes our container images without Docker, as OCI archives in the user's cache folder; prints the archive's path.

`workload`: a small busybox, under the image names that the documents' example manifests use.
`apportion`: Python, our wheel and its locked dependencies; what the Containerfile builds, from the same locks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real"))

import planes  # the line above makes these imports work
import workload
from reporting import CannotBuildError

IMAGES = {"apportion": planes.build, "workload": workload.build}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Make an image archive without Docker.")
    parser.add_argument("image", choices=IMAGES, nargs="?", default="apportion")
    options = parser.parse_args(arguments)
    try:
        print(IMAGES[options.image]())
    except CannotBuildError as missing:
        print(f"image: {missing}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
