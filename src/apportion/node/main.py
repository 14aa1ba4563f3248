"""The process `apportion node`."""

from __future__ import annotations

from collections.abc import Mapping

from apportion.cluster.client import Client
from apportion.cluster.errors import ConfigError
from apportion.node.agent import Agent
from apportion.node.hardware import drivers
from apportion.node.hardware.drivers import Factory, Site
from apportion.node.hardware.partitioner import PartitionError
from apportion.node.settings import Settings


async def run(settings: Settings, added: Mapping[str, Factory]) -> None:
    """`added` are drivers beyond those of the agent, by name."""
    try:
        driver = drivers.open_driver(settings.driver, Site(settings.node_name, settings.state_dir), added)
    except PartitionError as error:
        raise ConfigError(str(error)) from error
    async with Client.connect() as client:
        await Agent(settings, client, driver).run()
