"""Write the parameters of the operator's admission policies: the pods of the workloads that the operator manages.

A PodTemplate gets the same defaults as the pods of a Deployment, so an API server can compare the two.

python tools/generate/workload_parameters.py           write
python tools/generate/workload_parameters.py --check   fail if the committed file is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from apportion import manifests
from apportion.apis.installation import Installation
from apportion.operator.workloads import managed_workloads

TARGET = Path(__file__).parents[2] / "src" / "apportion" / "manifests" / "40-operator-parameters.yaml"
HEADER = "# Made by tools/generate/workload_parameters.py out of the other manifests; do not edit.\n"
LABELS = {"app.kubernetes.io/part-of": "apportion", "apportion.io/parameters": "operator"}


def rendered() -> str:
    shipped = {(entry["kind"], entry["metadata"]["name"]): entry for entry in manifests.load()}
    managed = managed_workloads(Installation())
    documents = [_parameter(shipped[workload.kind.kind, workload.name]) for workload in managed]
    return HEADER + yaml.safe_dump_all(documents, sort_keys=False, width=120)


def _parameter(workload: dict[str, Any]) -> dict[str, Any]:
    meta = workload["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "labels": dict(LABELS)},
        "template": workload["spec"]["template"],
    }


def main() -> int:
    if "--check" in sys.argv[1:]:
        if TARGET.exists() and TARGET.read_text() == rendered():
            return 0
        print(f"{TARGET} is out of date: run python tools/generate/workload_parameters.py", file=sys.stderr)
        return 1
    TARGET.write_text(rendered())
    print(f"wrote {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
