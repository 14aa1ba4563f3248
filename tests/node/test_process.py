"""The agent as people start it: a process, its signals and its flags."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process

import yaml

from pocketkube.api.http import HttpShell
from tests.node.agent_node import AGENT, NODE, AgentNode


async def test_s08_a_killed_agent_process_finds_its_slices_again(bare: AgentNode) -> None:
    shell = HttpShell(bare.server, None)
    await shell.start()
    process = await start(bare, shell)
    try:
        await bare.eventually(lambda: says(bare, "True", "Serving"), "ready", seconds=30)
        pod = await bare.scheduled("a")
        environment = await bare.run(pod)

        process.kill()
        await process.wait()
        process = await start(bare, shell)
        await bare.eventually(lambda: len(sockets(bare)) == 9, "it serves again", seconds=30)
        await bare.eventually(lambda: registered(bare), "and the kubelet knows", seconds=30)
        assert await bare.start(pod) == environment

        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert await says(bare, "False", "AgentStopped")
        assert sockets(bare) == []
        assert len(await bare.slices()) == 1
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await shell.stop()


async def test_settings_that_cannot_be_used_end_in_one_line(bare: AgentNode) -> None:
    process = await command("--driver=voodoo", "--node-name=n", **environment_of(bare, "http://127.0.0.1:1"))
    _, text = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 2
    assert b"'voodoo' is unknown: choose one of emulated, nvml" in text
    assert b"Traceback" not in text


async def start(node: AgentNode, shell: HttpShell) -> Process:
    return await command(*flags_of(node), **environment_of(node, shell.url))


def flags_of(node: AgentNode) -> list[str]:
    settings = node.settings
    flags = {
        "node-name": NODE,
        "pod-name": "das-daemonset-x",
        "pod-uid": "agent-uid",
        "kubelet-dir": settings.kubelet_dir,
        "cdi-dir": settings.cdi_dir,
        "state-dir": settings.state_dir,
        "cgroup-dir": settings.cgroup_dir,
        "listen": "127.0.0.1:0",
    }
    return [f"--{flag}={value}" for flag, value in flags.items()]


async def command(*flags: str, **environment: str) -> Process:
    program = (sys.executable, "-m", "apportion", "node", *flags)
    return await asyncio.create_subprocess_exec(*program, stderr=PIPE, env=os.environ | environment)


def environment_of(node: AgentNode, url: str) -> dict[str, str]:
    path = node.root / "kubeconfig"
    node.server.tokens.add_fixed("agent-token", AGENT)
    config = {
        "users": [{"name": "c", "user": {"token": "agent-token"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(config))
    return {"KUBECONFIG": str(path)}


def sockets(node: AgentNode) -> list[str]:
    return [path.name for path in node.settings.plugin_dir.glob("apportion-*.sock")]


def registered(node: AgentNode) -> bool:
    return all(not plugin.stopped for plugin in node.kubelet._plugins.values())


async def says(node: AgentNode, status: str, reason: str) -> bool:
    try:
        conditions = (await node.accelerator()).status.conditions
    except Exception:  # noqa: BLE001  not written yet
        return False
    return any((entry.status, entry.reason) == (status, reason) for entry in conditions)
