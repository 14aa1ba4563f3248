"""Records cases anew: `python -m tests.differential.record --worlds 40 --seed 0 FILE.jsonl.gz`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.differential import cases, recording, worlds


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a real kube-scheduler about random worlds.")
    parser.add_argument("--worlds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the first world; the others count up")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        oracle = recording.Oracle(Path(folder) / "oracle")
        try:
            seeds = range(options.seed, options.seed + options.worlds)
            cases.save(options.file, [oracle.answer(worlds.world(seed)) for seed in seeds])
        finally:
            oracle.close()


if __name__ == "__main__":
    main()
