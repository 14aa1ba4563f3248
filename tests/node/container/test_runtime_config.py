"""T05: what the agent reports about the configuration of container runtimes."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from apportion.node.container import runtime_config
from apportion.node.container.runtime_config import BY_MOUNT, BY_VARIABLE, CONTAINERD_FILE, NVIDIA_FILES
from tests.node.agent_node import AgentNode

SAFE = f"{BY_VARIABLE} = false\n{BY_MOUNT} = true\n"


def write(root: Path, name: str, text: str) -> Path:
    file = root / name.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_t05_a_node_without_nvidias_runtime_has_nothing_to_report(tmp_path: Path) -> None:
    assert runtime_config.check(tmp_path) is None
    write(tmp_path, CONTAINERD_FILE, "version = 2\n")
    assert runtime_config.check(tmp_path) is None


@pytest.mark.parametrize("name", NVIDIA_FILES)
@pytest.mark.parametrize(
    ("text", "status", "reason", "fix"),
    [
        (SAFE, "True", "Restricted", ""),
        ("", "False", "VariableAccepted", f"{BY_VARIABLE} = false"),
        (f"#{BY_VARIABLE} = false\n", "False", "VariableAccepted", f"{BY_MOUNT} = true"),
        (f"{BY_VARIABLE} = true\n{BY_MOUNT} = true\n", "False", "VariableAccepted", f"{BY_VARIABLE} = false"),
        (f'{BY_VARIABLE} = "false"\n', "False", "VariableAccepted", f"{BY_VARIABLE} = false"),
        (f"{BY_VARIABLE} = false\n", "False", "NoDeviceRequests", f"{BY_MOUNT} = true"),
        ("= broken", "Unknown", "ConfigurationUnreadable", "cannot be read"),
        ("\udcff", "Unknown", "ConfigurationUnreadable", "cannot be read"),
    ],
)
def test_t05_the_switch_of_nvidias_runtime(
    tmp_path: Path, name: str, text: str, status: str, reason: str, fix: str
) -> None:
    file = write(tmp_path, name, "")
    file.write_bytes(os.fsencode(text))
    found = runtime_config.check(tmp_path)
    assert found is not None
    assert (found.status, found.reason) == (status, reason)
    assert fix in found.message
    assert status == "True" or name in found.message


@pytest.mark.parametrize("plugin", ["io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"])
def test_t05_a_containerd_without_cdi_is_reported(tmp_path: Path, plugin: str) -> None:
    write(tmp_path, NVIDIA_FILES[0], SAFE)
    write(tmp_path, CONTAINERD_FILE, f'[plugins."{plugin}"]\nenable_cdi = false\n')
    found = runtime_config.check(tmp_path)
    assert found is not None
    assert (found.status, found.reason) == ("False", "CdiDisabled")
    assert "enable_cdi = true" in found.message
    write(tmp_path, CONTAINERD_FILE, f'[plugins."{plugin}"]\nenable_cdi = true\n')
    found = runtime_config.check(tmp_path)
    assert found is not None
    assert found.reason == "Restricted"


def test_t05_all_problems_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, NVIDIA_FILES[0], SAFE)
    write(tmp_path, NVIDIA_FILES[1], "")
    write(tmp_path, CONTAINERD_FILE, "plugins = 1\n")
    found = runtime_config.check(tmp_path)
    assert found is not None
    assert found.reason == "VariableAccepted"
    write(tmp_path, CONTAINERD_FILE, '[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n')
    found = runtime_config.check(tmp_path)
    assert found is not None
    assert found.message.count("; ") == 1


async def test_t05_emulated_gpus_have_no_runtime_to_report(bare: AgentNode, tmp_path: Path) -> None:
    write(tmp_path, NVIDIA_FILES[0], "")
    bare.settings = dataclasses.replace(bare.settings, host_root=tmp_path)
    await bare.start_agent()
    assert [each.type for each in (await bare.accelerator()).status.conditions] == ["Ready"]
