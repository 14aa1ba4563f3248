"""The import contracts of pyproject.toml hold, and each of them fails when it is broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.pocketkube.test_without_gpus import GENERAL

ROOT = Path(__file__).parents[2]


class Breach(NamedTuple):
    """An import that is not allowed, added to a module or the only line of a new one."""

    contract: str
    module: str
    line: str


BREACHES = [
    Breach("layers", "apportion/core/new_module.py", "import apportion.cluster.client"),
    Breach("layers", "apportion/scheduler/new_module.py", "import apportion.node"),
    Breach("layers", "apportion/scheduler/new_module.py", "import pocketkube.cluster"),
    Breach("layers", "pocketkube/new_module.py", "import apportion.scheduler"),
    Breach("pure-core", "apportion/core/new_module.py", "import asyncio"),
    Breach("pure-core", "apportion/apis/quantity.py", "import time"),
    Breach("small-agent", "apportion/node/new_module.py", "import apportion.core.fleet"),
    Breach("small-agent", "apportion/node/hardware/slicing.py", "import apportion.view"),
    Breach("small-agent", "apportion/emulation/gpus/driver.py", "import apportion.core.placement.node_prices"),
    Breach("agent-without-numpy", "apportion/core/grid.py", "import numpy"),
    Breach("agent-without-numpy", "apportion/node/new_module.py", "import numpy"),
    Breach("small-reservation", "apportion/reserve/attempts.py", "import pynvml"),
    Breach("small-reservation", "apportion/reserve/device.py", "import apportion.apis.installation"),
    Breach("pocketkube", "pocketkube/new_module.py", "import apportion.emulation.cluster.topology"),
    Breach("pocketkube", "pocketkube/controllers/new_module.py", "import apportion.core"),
    Breach("pocketkube", "pocketkube/api/server.py", "import apportion.apis.names"),
    Breach("pocketkube-loads", "apportion/apis/effective_resources.py", "import apportion.apis.profiles"),
    Breach("pocketkube-loads", "apportion/cluster/client.py", "import apportion.core.catalog"),
    Breach("pocketkube-loads", "apportion/cluster/events.py", "import apportion.apis.installation"),
    Breach("pocketkube-loads", "apportion/apis/kinds.py", "import apportion.apis.custom_resources.queues"),
]


def contracts() -> dict[str, dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return {contract["id"]: contract for contract in settings["contracts"]}


def lint(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", *options]
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def test_all_contracts_hold() -> None:
    checked = lint(ROOT)
    assert checked.returncode == 0, checked.stdout
    assert f"Contracts: {len(contracts())} kept, 0 broken." in checked.stdout


def test_every_contract_is_broken_by_a_case_below() -> None:
    assert contracts().keys() == {breach.contract for breach in BREACHES}


def test_pocketkube_loads_general_modules_and_every_other_is_forbidden() -> None:
    forbidden = contracts()["pocketkube-loads"]["forbidden_modules"]
    paths = [path.relative_to(ROOT / "src").with_suffix("") for path in (ROOT / "src/apportion").rglob("*.py")]
    modules = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    assert {
        module for module in modules if not f"{module}.".startswith(tuple(f"{each}." for each in forbidden))
    } == GENERAL


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: f"{breach.contract}: {breach.line}")
def test_a_broken_contract_fails(breach: Breach, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / "src" / breach.module
    with target.open("a") as file:
        file.write(f"\n{breach.line}\n")
    checked = lint(tmp_path, "--contract", breach.contract)
    assert checked.returncode == 1, checked.stdout
    assert "1 broken" in checked.stdout
    assert breach.line.removeprefix("import ") in checked.stdout
