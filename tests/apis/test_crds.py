"""The CRDs: what the types say is what a server enforces, and what kubectl prints."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apportion.apis import kinds
from apportion.apis.custom_resources import crds, queues
from apportion.apis.custom_resources.claims import AllocationClaim
from apportion.apis.custom_resources.queues import Queue
from apportion.apis.kinds import Kind
from apportion.cluster import errors
from apportion.cluster.client import Client
from pocketkube.api.in_process_transport import LocalTransport
from pocketkube.api.server import ApiServer

JSON = dict[str, Any]
CLAIM: JSON = {
    "metadata": {"name": "c", "namespace": "das-operator"},
    "spec": {
        "profile": "1g.5gb",
        "gpuUUID": "GPU-1",
        "migPlacement": {"start": 0, "size": 1},
        "nodename": "n1",
        "podRef": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"},
    },
}
# The two queues of document 004, as they stand there.
QUEUES = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata:
  name: default
spec:
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata:
  name: test
spec:
  parentQueue: default
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
"""


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(LocalTransport(ApiServer())) as client:
        for name in ("default", "das-operator"):
            await client.create(kinds.NAMESPACES, {"metadata": {"name": name}})
        for crd in crds.crds():
            await client.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, crd)
        yield client


def test_all_seven_kinds_have_one() -> None:
    found = {crd["metadata"]["name"] for crd in crds.crds()}
    assert found == {
        "allocationclaims.inference.redhat.com",
        "nodeaccelerators.inference.redhat.com",
        "dasoperators.inference.redhat.com",
        "queues.scheduling.run.ai",
        "podgroups.scheduling.run.ai",
        "bindrequests.scheduling.run.ai",
        "configs.kai.scheduler",
    }


def test_s06_claims_print_name_and_age_and_more_when_wide() -> None:
    crd = next(crd for crd in crds.crds() if crd["spec"]["names"]["kind"] == "AllocationClaim")
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [column["name"] for column in columns if not column.get("priority")] == ["Age"]
    assert [column["name"] for column in columns if column.get("priority") == 1] == ["Profile", "Node", "GPU", "State"]
    assert crd["spec"]["names"]["shortNames"] == ["alloc"]


def test_the_committed_file_is_up_to_date() -> None:
    script = Path(__file__).parents[2] / "tools" / "generate" / "crds.py"
    result = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


async def test_s06_a_claim_goes_round_without_losing_a_field(client: Client) -> None:
    claim = await client.create(kinds.ALLOCATION_CLAIMS, CLAIM, into=AllocationClaim)
    assert claim.spec.mig_placement.start == 0
    status = {"state": "inUse", "migUUID": "MIG-1", "conditions": [{"type": "State", "status": "True"}]}
    await client.patch(kinds.ALLOCATION_CLAIMS, "c", {"status": status}, namespace="das-operator", subresource="status")
    again = await client.get(kinds.ALLOCATION_CLAIMS, "c", namespace="das-operator", into=AllocationClaim)
    assert (again.state, again.status.mig_uuid) == ("inUse", "MIG-1")
    plain = await client.get(kinds.ALLOCATION_CLAIMS, "c", namespace="das-operator")
    assert plain["spec"] == CLAIM["spec"]


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("spec", "migPlacement", "start"), -1, "spec.migPlacement.start"),
        (("spec", "migPlacement", "size"), "one", "spec.migPlacement.size"),
        (("spec", "profile"), "", "spec.profile"),
        (("spec", "nodename"), None, "spec.nodename"),
    ],
)
async def test_a_bad_claim_is_refused_by_field(client: Client, path: tuple[str, ...], value: Any, field: str) -> None:
    import copy

    claim = copy.deepcopy(CLAIM)
    place = claim
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    with pytest.raises(errors.Invalid) as caught:
        await client.create(kinds.ALLOCATION_CLAIMS, claim)
    assert field in str(caught.value)


async def test_q01_the_documents_queues_apply_unchanged(client: Client) -> None:
    for queue in yaml.safe_load_all(QUEUES):
        made = await client.create(kinds.QUEUES, queue)
        assert made["spec"]["priority"] == 100
        parsed = queues.read(await client.get(kinds.QUEUES, queue["metadata"]["name"], into=Queue))
        assert (parsed.gpu.quota, parsed.gpu.limit, parsed.gpu.weight) == (-1, -1, 1)
        assert parsed.parent == queue["spec"].get("parentQueue", "")


async def test_q01_what_is_not_set_is_not_filled_in_and_read_as_the_default(client: Client) -> None:
    made = await client.create(kinds.QUEUES, {"metadata": {"name": "q"}, "spec": {"resources": {"gpu": {"quota": 2}}}})
    assert made["spec"]["resources"] == {"gpu": {"quota": 2}}
    found = queues.read(await client.get(kinds.QUEUES, "q", into=Queue))
    assert (found.gpu.quota, found.gpu.limit, found.gpu.weight) == (2000, -1, 1)
    assert (found.cpu.quota, found.cpu.limit, found.cpu.weight) == (-1, -1, 1)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (kinds.KAI_CONFIGS, {"admission": {"gpuSharing": True}, "global": {"something": "else"}}),
        (kinds.DAS_OPERATORS, {"emulatedMode": "enabled", "unsupportedConfigOverrides": {"a": {"b": 1}}}),
        (
            kinds.KAI_CONFIGS,
            {
                "admission": {"gpuSharing": True, "webhook": {"port": 443}},
                "binder": {
                    "cdiEnabled": True,
                    "resourceReservation": {"namespace": "n", "image": {"tag": "t"}},
                    "replicas": 2,
                },
                "podGrouper": {"everyPod": True, "args": {"gangScheduleKnative": True}},
            },
        ),
        (kinds.POD_GROUPS, {"minMember": 2, "queue": "q", "schedulingBackoff": -1}),
        (kinds.POD_GROUPS, {"minMember": 1, "subGroups": [{"name": "a", "minMember": 1, "later": {"x": 1}}]}),
    ],
)
async def test_manifests_that_people_have_keep_fields_that_we_do_not_know(
    client: Client, kind: Kind, spec: JSON
) -> None:
    body = {"metadata": {"name": "x", **({"namespace": "default"} if kind.namespaced else {})}, "spec": spec}
    made = await client.create(kind, body)
    assert spec.items() <= made["spec"].items()


async def test_s10_the_operators_object_has_defaults_and_refuses_other_words(client: Client) -> None:
    body: JSON = {"metadata": {"name": "cluster", "namespace": "das-operator"}, "spec": {}}
    made = await client.create(kinds.DAS_OPERATORS, body)
    assert made["spec"]["managementState"] == "Managed"
    assert made["spec"]["emulatedMode"] == "disabled"
    body["metadata"]["name"] = "other"
    body["spec"]["emulatedMode"] = "perhaps"
    with pytest.raises(errors.Invalid, match="emulatedMode"):
        await client.create(kinds.DAS_OPERATORS, body)
