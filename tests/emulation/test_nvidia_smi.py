"""`nvidia-smi` of emulated GPUs: what it prints, in Python and in a shell (F09)."""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apportion.apis import names
from apportion.apis.placements import SlicePlacement
from apportion.emulation.gpus.driver import EmulatedDriver
from apportion.emulation.nvidia_smi import command, script
from apportion.emulation.nvidia_smi.machine import Instance, Machine, VisibleGpu, instance_id
from tests.environments import binaries

NOW = datetime(2026, 11, 16, 2, 30, 5, tzinfo=UTC)
MACHINE = Machine(
    (
        VisibleGpu(
            0,
            "GPU-a",
            "NVIDIA-H200",
            71680,
            mig=True,
            used_mib=20480,
            instances=(
                Instance("2g.20gb", 0, 2, "MIG-1", 20480, 3, 32, 20480),
                Instance("1g.10gb", 6, 1, "MIG-2", 10240, 13, 16),
            ),
        ),
        VisibleGpu(1, "GPU-b", "NVIDIA A100-PCIE-40GB", 40960),
    )
)
CALLS = [
    [],
    ["-L"],
    ["-i", "1"],
    ["--id=GPU-a", "-L"],
    ["-i", "9"],
    ["-h"],
    ["-x"],
    ["--query-gpu=name"],
    ["--query-gpu=nonsense", "--format=csv"],
    ["--query-gpu=index,gpu_name,memory.total,memory.used,mig.mode.current,utilization.gpu", "--format=csv"],
    ["--query-gpu=index, uuid, memory.free", "--format=csv,noheader"],
    ["--query-gpu=count,driver_version,memory.total", "--format=csv,noheader,nounits", "-i", "0"],
]


def printed(*argv: str) -> str:
    code, text = command.run(MACHINE, argv, NOW)
    assert code == 0
    return text


def test_f09_the_list_names_gpus_and_their_mig_devices() -> None:
    assert printed("-L").splitlines() == [
        "GPU 0: NVIDIA-H200 (UUID: GPU-a)",
        "  MIG 2g.20gb     Device  0: (UUID: MIG-1)",
        "  MIG 1g.10gb     Device  1: (UUID: MIG-2)",
        "GPU 1: NVIDIA A100-PCIE-40GB (UUID: GPU-b)",
    ]


def test_f09_the_table_has_a_mig_section_and_straight_edges() -> None:
    lines = printed().splitlines()
    assert lines[0] == "Mon Nov 16 02:30:05 2026"
    assert {len(line) for line in lines[1:] if line} == {91}
    text = "\n".join(lines)
    assert re.search(r"\|   0  NVIDIA-H200 .*\| +00000000:01:00\.0 Off \|", text)
    assert "20480MiB /  71680MiB" in text
    assert re.search(r"\|  0    3   0   0  \| +20480MiB / 20480MiB +\| 32 +0 \|", text)
    assert re.search(r"\|  0   13   0   1  \| +0MiB / 10240MiB", text)
    assert text.count("Enabled") == text.count("Disabled") == 1
    assert "No running processes found" in text


def test_f09_queries_answer_as_csv() -> None:
    fields = "--query-gpu=index,name,memory.total,mig.mode.current"
    assert printed(fields, "--format=csv").splitlines() == [
        "index, name, memory.total [MiB], mig.mode.current",
        "0, NVIDIA-H200, 71680 MiB, Enabled",
        "1, NVIDIA A100-PCIE-40GB, 40960 MiB, Disabled",
    ]
    assert printed(fields, "--format=csv,noheader,nounits").splitlines()[0] == "0, NVIDIA-H200, 71680, Enabled"


def test_f09_a_container_sees_what_it_was_given_counted_from_zero() -> None:
    seen = MACHINE.visible({"MIG-2"})
    assert [(board.index, board.uuid, board.used_mib) for board in seen.boards] == [(0, "GPU-a", 0)]
    assert [each.uuid for each in seen.boards[0].instances] == ["MIG-2"]
    assert [board.uuid for board in MACHINE.visible({"GPU-b"}).boards] == ["GPU-b"]
    assert command.run(MACHINE.visible(()), ["-L"], NOW) == (6, "No devices were found\n")


def test_f09_instance_ids_are_unique_on_a_gpu() -> None:
    assert instance_id(8, 0, 8) == 0
    assert [instance_id(8, start, 4) for start in (0, 4)] == [1, 2]
    assert [instance_id(8, start, 2) for start in (0, 2, 4)] == [3, 4, 5]
    assert [instance_id(8, start, 1) for start in range(7)] == list(range(7, 14))


@pytest.mark.parametrize("shell", ["sh", "busybox"])
def test_f09_the_shell_script_says_the_same(tmp_path: Path, shell: str) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_text(script.render(MACHINE))
    busybox = binaries.locate("busybox")
    if shell == "busybox" and busybox is None:
        pytest.skip("no busybox here: run `make real`")
    prefix = [str(busybox), "sh"] if shell == "busybox" else ["sh"]
    for call in CALLS:
        done = subprocess.run([*prefix, str(path), *call], capture_output=True, text=True, check=False, timeout=30)
        assert (done.returncode, undated(done.stdout)) == undated_pair(command.run(MACHINE, call, NOW)), call
        assert done.stderr == ""


def test_f09_a_script_carries_its_view() -> None:
    assert script.read(script.render(MACHINE)) == MACHINE
    assert script.read("#!/bin/sh\n") is None
    assert script.read("# view: nonsense") is None


def undated(text: str) -> str:
    return re.sub(r"^\w{3} \w{3} [ \d]\d [\d:]+ \d{4}\n", "", text)


def undated_pair(answer: tuple[int, str]) -> tuple[int, str]:
    return answer[0], undated(answer[1])


async def test_f09_the_script_of_a_node_shows_a_slice_as_soon_as_it_exists(tmp_path: Path) -> None:
    driver = EmulatedDriver("n1", tmp_path)
    await driver.configure({names.EMULATED_GPUS: '[{"product": "NVIDIA A100-PCIE-40GB", "count": 1}]'})
    (gpu,) = await driver.discover()
    place = SlicePlacement(gpu.uuid, "2g.10gb", 2, 2)
    made = await driver.create(place)
    assert made.uuid in (tmp_path / "nvidia-smi").read_text()
    await driver.destroy(place)
    assert made.uuid not in (tmp_path / "nvidia-smi").read_text()
