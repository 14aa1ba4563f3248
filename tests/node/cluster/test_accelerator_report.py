"""The NodeAccelerator in the form of the DAS operator, for clients that were written for it. Rule S09."""

from __future__ import annotations

import json
from typing import Any

from apportion.apis import kinds, names
from tests.node.agent_node import GPUS, NODE, AgentNode, agent_node

JSON = dict[str, Any]


async def inventory(node: AgentNode) -> JSON:
    found = await node.client.get(kinds.NODE_ACCELERATORS, NODE, namespace=names.DAS_NAMESPACE)
    resources: JSON = found["status"]["nodeResources"]
    return resources


async def test_s09_the_inventory_has_the_form_of_the_original(node: AgentNode) -> None:
    found = await inventory(node)
    assert found["nodeGpus"] == [
        {"gpuUuid": uuid, "gpuName": "NVIDIA A100-PCIE-40GB", "gpuMemory": "40Gi"} for uuid in GPUS[:2]
    ]
    placement = found["migPlacement"]
    assert placement["1g.5gb"]["placements"] == [{"size": 1, "start": start} for start in range(7)]
    assert placement["3g.20gb"] == {
        "placements": [{"size": 4, "start": 0}, {"size": 4, "start": 4}],
        "giProfileId": 2,
        "ciProfileId": 2,
    }
    # NVML's enums: the media engines have one of their own for GPU instances, and none for compute instances
    assert (placement["1g.5gb+me"]["giProfileId"], placement["1g.5gb+me"]["ciProfileId"]) == (7, 0)
    assert found["nodeResources"]["mig.das.com/1g.5gb"] == "14"


async def test_s09_only_gpus_on_which_slices_can_be_placed_are_in_the_original_form() -> None:
    gpus = [{"product": "NVIDIA A100-PCIE-40GB", "count": 1, "mig": False}, {"product": "NVIDIA A30", "count": 1}]
    async with agent_node(annotations={names.EMULATED_GPUS: json.dumps(gpus)}) as node:
        await node.start_agent()
        found = await inventory(node)
        assert [gpu["gpuName"] for gpu in found["nodeGpus"]] == ["NVIDIA A30"]
        assert "1g.6gb" in found["migPlacement"]
        assert "1g.5gb" not in found["migPlacement"]


async def test_s09_profiles_that_a_node_no_longer_has_leave_the_inventory(node: AgentNode) -> None:
    assert "1g.5gb" in (await inventory(node))["migPlacement"]
    await node.annotate_node(**{"apportion.io__emulated-gpus": '[{"product": "NVIDIA A30", "count": 1}]'})

    async def replaced() -> bool:
        found = await inventory(node)
        profiles = [*found["migPlacement"], *found["nodeResources"]]
        return "1g.6gb" in profiles and not any("5gb" in profile for profile in profiles)

    await node.eventually(replaced, "the inventory is that of an A30")
    status = (await node.client.get(kinds.NODE_ACCELERATORS, NODE, namespace=names.DAS_NAMESPACE))["status"]
    assert [gpu["model"] for gpu in status["gpus"]] == ["NVIDIA A30"]
