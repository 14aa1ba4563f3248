"""What a cluster runs besides its own parts: programs, images as processes, commands of images, controllers."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from apportion.apis import kinds
from pocketkube.controllers.controller import Control, Json
from pocketkube.kubelet.shell.programs import Call
from pocketkube.plugins import Plugins, ProcessImage
from tests.pocketkube.cluster import embedded, pod


async def greet(call: Call, /) -> int:
    await call.out(f"hello {call.args[0]} on {call.hostname}\n")
    return 3


async def test_a_program_of_a_plugin_runs_in_simulated_containers(tmp_path: Path) -> None:
    async with embedded(tmp_path, plugins=Plugins(programs={"greet": f"{__name__}:greet"})) as cluster:
        await cluster.create(kinds.PODS, pod("p", "sh", "-c", "greet you | grep hello", restartPolicy="Never"))
        await cluster.create(kinds.PODS, pod("q", "/usr/bin/greet", "me", restartPolicy="Never"))
        await cluster.until_phase("p", "Succeeded")
        assert await cluster.logs("p") == "hello you on p\n"
        failed = await cluster.until_phase("q", "Failed")
        assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_an_image_of_a_plugin_runs_as_a_process_with_the_files_of_its_account(tmp_path: Path) -> None:
    script = "import os, sys; print(sys.argv[1:], os.path.exists(os.environ['ACCOUNT'] + '/token'))"
    image = ProcessImage(
        image="registry.example/team/tool:1.2",
        namespaces=frozenset({"default"}),
        program="tool",
        command=(sys.executable, "-c", script),
        subcommands={"a": {}},
        service_account_env="ACCOUNT",
    )
    async with embedded(tmp_path, plugins=Plugins(process_images=[image])) as cluster:
        container = {"args": ["a", "$(WORD)"], "env": [{"name": "WORD", "value": "b"}]}
        body = pod("p", "tool", image="registry.example/team/tool:1.2", container=container, restartPolicy="Never")
        await cluster.create(kinds.PODS, body)
        await cluster.until_phase("p", "Succeeded")
        assert await cluster.logs("p") == "['a', 'b'] True\n"


async def test_a_plugin_says_what_an_image_runs(tmp_path: Path) -> None:
    commands = {"sample:*": ["sh", "-c", "echo sampled"]}
    async with embedded(tmp_path, plugins=Plugins(image_commands=commands)) as cluster:
        await cluster.create(kinds.PODS, pod("p", image="registry.example/sample:1", restartPolicy="Never"))
        await cluster.until_phase("p", "Succeeded")
        assert await cluster.logs("p") == "sampled\n"


async def test_a_controller_of_a_plugin_runs_beside_the_others(tmp_path: Path) -> None:
    class Labels:
        """Marks every ConfigMap of the namespace default."""

        name = "labels"

        def __init__(self, control: Control) -> None:
            self._control = control
            self._waiting: asyncio.Queue[str] = asyncio.Queue()

        def subscribe(self) -> None:
            self._control.informers.of(kinds.CONFIG_MAPS).on_change(self._changed)

        async def run(self) -> None:
            while True:
                name = await self._waiting.get()
                patch = {"metadata": {"labels": {"seen": "yes"}}}
                await self._control.client.patch(kinds.CONFIG_MAPS, name, patch, namespace="default")

        def _changed(self, old: Json | None, new: Json | None) -> None:
            if old is None and new is not None and new["metadata"]["namespace"] == "default":
                self._waiting.put_nowait(new["metadata"]["name"])

    async with embedded(tmp_path, plugins=Plugins(controllers=[Labels])) as cluster:
        await cluster.create(kinds.CONFIG_MAPS, {"metadata": {"name": "c"}})
        await cluster.until(kinds.CONFIG_MAPS, "c", lambda c: c["metadata"].get("labels") == {"seen": "yes"})
