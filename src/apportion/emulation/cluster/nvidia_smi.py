"""`nvidia-smi` in simulated containers: what the agent's script for this container shows."""

from __future__ import annotations

from datetime import UTC, datetime

from apportion.apis import names
from apportion.emulation.nvidia_smi import command, script
from apportion.emulation.nvidia_smi.machine import Machine, VisibleGpu
from pocketkube.kubelet.shell.programs import Call

_PATH = "/usr/bin/nvidia-smi"


async def program(call: Call, /) -> int:
    try:
        machine = script.read(call.files.read(_PATH)) or Machine()
    except OSError:
        machine = _unseen(call)
    code, text = command.run(machine, call.args, datetime.fromtimestamp(await call.clock.now(), UTC))
    await call.out(text)
    return code


def _unseen(call: Call) -> Machine:
    """Devices of which nothing but the uuid is known: no script is mounted."""
    visible = call.env.get(names.VISIBLE_DEVICES, "").split(",")
    found = [uuid for uuid in visible if uuid not in ("", "void", "none")]
    return Machine(tuple(VisibleGpu(number, uuid, "NVIDIA", 0) for number, uuid in enumerate(found)))
