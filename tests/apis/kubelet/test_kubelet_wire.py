"""The kubelet's protocols: committed stubs, and the checkpoint as a kubelet 1.34 writes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from apportion.apis.kubelet import checkpoint, deviceplugin_pb2, podresources_pb2

ROOT = Path(__file__).resolve().parents[3]

REAL = b"""{"Data":{"PodDeviceEntries":[
 {"PodUID":"u1","ContainerName":"init","ResourceName":"mig.das.com/1g.5gb","DeviceIDs":{"-1":["a"]},"AllocResp":"KgUKA3g9eQ=="},
 {"PodUID":"u1","ContainerName":"main","ResourceName":"mig.das.com/1g.5gb","DeviceIDs":{"-1":["a"]},"AllocResp":"KgUKA3g9eQ=="},
 {"PodUID":"u1","ContainerName":"main","ResourceName":"gpu.das.com/mem","DeviceIDs":{"0":["g1"],"1":["g1","g2"]},"AllocResp":""}],
 "RegisteredDevices":{"mig.das.com/1g.5gb":["a","b"]}},"Checksum":3165416734}"""


def test_s07_the_checkpoint_tells_whose_ids_these_are() -> None:
    record = checkpoint.decode(REAL)
    holders = record.holders("mig.das.com/1g.5gb", ["a"])
    assert [(entry.pod_uid, entry.container_name) for entry in holders] == [("u1", "init"), ("u1", "main")]
    assert record.holders("mig.das.com/1g.5gb", ["a", "b"]) == []
    assert {entry.resource_name: sorted(entry.ids()) for entry in record.container("u1", "main")} == {
        "mig.das.com/1g.5gb": ["a"],
        "gpu.das.com/mem": ["g1", "g2"],
    }
    assert record.registered() == {"mig.das.com/1g.5gb": ["a", "b"]}
    assert checkpoint.decode(checkpoint.encode(record)) == record


def test_an_empty_checkpoint_has_null_where_go_has_empty_lists() -> None:
    record = checkpoint.decode(b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null},"Checksum":0}')
    assert record.entries() == []
    assert record.registered() == {}


def test_anything_else_is_no_checkpoint() -> None:
    with pytest.raises(msgspec.DecodeError):
        checkpoint.decode(b'{"Data": 7}')


def test_messages_have_the_kubelets_wire_format() -> None:
    answer = deviceplugin_pb2.ContainerAllocateResponse(cdi_devices=[deviceplugin_pb2.CDIDevice(name="x=y")])
    assert answer.SerializeToString() == b"*\x05\n\x03x=y"
    assert deviceplugin_pb2.DESCRIPTOR.package == "v1beta1"
    assert podresources_pb2.DESCRIPTOR.package == "v1"


def test_the_committed_stubs_are_what_the_protos_give() -> None:
    pytest.importorskip("grpc_tools")
    tool = ROOT / "tools" / "generate" / "protos.py"
    result = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
