"""The cluster that the current kubeconfig names, seen through kubectl alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from tests.environments import binaries

Json = dict[str, Any]
DAS = "das-operator"
HOW_TO_INSTALL = "install Apportion first (`apportion up`, or kubectl apply of its manifests)"


class CurrentCluster:
    """kubectl without any flag of ours: the user's own kubeconfig and context."""

    def __init__(self) -> None:
        found = shutil.which("kubectl") or binaries.locate("kubectl")
        if found is None:
            raise pytest.UsageError("kubectl is missing: put it on the PATH, or run `make real`")
        self._program = str(found)

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        done = subprocess.run(
            [self._program, *args], input=input, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode and check:
            raise AssertionError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def check(self) -> None:
        """One clear line if there is nothing to test."""
        answer = self.kubectl("get", "nodeaccelerators", "-n", DAS, "-o", "name", check=False)
        if "nodeaccelerator" not in answer.partition("\n")[0] or "error" in answer.lower():
            where = os.environ.get("KUBECONFIG", "~/.kube/config")
            pytest.exit(f"no NodeAccelerator in the cluster of {where}: {HOW_TO_INSTALL}: {answer.strip()}", 2)

    def items(self, *what: str) -> list[Json]:
        return list(json.loads(self.kubectl("get", *what, "-o", "json"))["items"])

    def claims(self) -> list[Json]:
        return self.items("allocationclaims", "-n", DAS)

    def sliced_node(self) -> Json:
        """A NodeAccelerator that is ready and whose first GPU can be cut."""
        for entry in self.items("nodeaccelerators", "-n", DAS):
            conditions = {one["type"]: one["status"] for one in entry["status"].get("conditions", ())}
            if conditions.get("Ready") == "True" and places(entry):
                return entry
        pytest.skip("no node with a GPU in MIG mode is ready")


def places(accelerator: Json) -> dict[str, int]:
    """How many slices of each profile the node's GPUs hold if they hold nothing else."""
    found: dict[str, int] = {}
    for gpu in accelerator["status"]["gpus"]:
        if gpu.get("migEnabled") and gpu.get("healthy", True):
            for profile in gpu.get("profiles", ()):
                most = min(profile.get("limit") or len(profile["starts"]), len(profile["starts"]))
                found[profile["name"]] = found.get(profile["name"], 0) + most
    return found


def smallest(accelerator: Json) -> str:
    """The profile of which most fit, the plain one first."""
    counts = places(accelerator)
    return min(counts, key=lambda name: (-counts[name], "+" in name, name))
