"""T02: what is too large is refused, with the codes and words of kube-apiserver and etcd."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.contract.raw_requests import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, RawRequests, config_map, pod

MIB = 1024 * 1024
REFUSED_PATCH = "the server rejected our request due to an error in our request"


async def test_t02_copies_of_a_json_patch_may_not_add_up_to_more_than_a_request(ask: RawRequests, maps: str) -> None:
    await ask("POST", maps, config_map("m", {"a": "x" * 200_000}))
    copies = [{"op": "copy", "from": "/data/a", "path": f"/data/c{index}"} for index in range(30)]
    answer = await ask("PATCH", f"{maps}/m", copies, media=JSON_PATCH)
    assert (answer.code, answer.reason, answer.message) == (422, "Invalid", REFUSED_PATCH)
    doubling = [{"op": "copy", "from": "/metadata", "path": f"/metadata/n{index}"} for index in range(30)]
    answer = await ask("PATCH", f"{maps}/m", doubling, media=JSON_PATCH)
    assert (answer.code, answer.reason, answer.message) == (422, "Invalid", REFUSED_PATCH)
    few = [{"op": "copy", "from": "/data/a", "path": "/data/b"}, {"op": "replace", "path": "/data/a", "value": "1"}]
    assert (await ask("PATCH", f"{maps}/m", few, media=JSON_PATCH)).code == 200


async def test_t02_a_json_patch_has_at_most_ten_thousand_operations(ask: RawRequests, maps: str) -> None:
    await ask("POST", maps, config_map("m"))
    operation = {"op": "test", "path": "/kind", "value": "ConfigMap"}
    assert (await ask("PATCH", f"{maps}/m", [operation] * 10_000, media=JSON_PATCH)).code == 200
    answer = await ask("PATCH", f"{maps}/m", [operation] * 10_001, media=JSON_PATCH)
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
    limit = "The allowed maximum operations in a JSON patch is 10000, got 10001"
    assert answer.message == f"Request entity too large: {limit}"


@pytest.mark.parametrize("media", ["application/json", MERGE_PATCH, APPLY_PATCH])
async def test_t02_a_request_has_at_most_three_mebibytes(ask: RawRequests, maps: str, media: str) -> None:
    await ask("POST", maps, config_map("m"))
    body = json.dumps({"a": "x" * 4 * MIB}).encode()
    method, path = ("POST", maps) if media == "application/json" else ("PATCH", f"{maps}/m")
    answer = await ask(method, path, body, media=media, fieldManager="m")
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
    assert answer.message == "Request entity too large: limit is 3145728"


async def test_t02_an_object_that_etcd_would_not_take_is_refused(ask: RawRequests, pods: str) -> None:
    large = pod("large", containers=[{"name": "c", "image": "i", "args": ["x" * 2_060_000]}])
    answer = await ask("POST", pods, large)
    assert (answer.code, answer.message) == (500, "etcdserver: request is too large")
    assert (await ask("GET", f"{pods}/large")).code == 404


async def test_t02_an_object_cannot_grow_beyond_the_limit(ask: RawRequests, pods: str) -> None:
    fitting = pod("growing", containers=[{"name": "c", "image": "i", "args": ["x" * 1_400_000]}])
    assert (await ask("POST", pods, fitting)).code == 201
    statuses = [{"type": f"example.io/{index}", "status": "True", "message": "z" * 1000} for index in range(600)]
    answer = await ask("PATCH", f"{pods}/growing/status", {"status": {"conditions": statuses}}, media=MERGE_PATCH)
    assert (answer.code, answer.message) == (500, "etcdserver: request is too large")


async def test_t02_at_most_a_hundred_unknown_or_duplicate_fields_are_told(ask: RawRequests, maps: str) -> None:
    unknown = {f"u{index}": 1 for index in range(2_000)}
    answer = await ask("POST", maps, config_map("m") | unknown)
    assert (answer.code, len(answer.warnings)) == (201, 100)
    answer = await ask("POST", maps, config_map("n") | unknown, fieldValidation="Strict")
    assert (answer.code, answer.message.count("unknown field")) == (400, 100)
    data = ",".join(f'"a{index}":"1","a{index}":"2"' for index in range(300))
    text = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"d"}},"data":{{{data}}}}}'.encode()
    answer = await ask("POST", maps, text, fieldValidation="Strict")
    assert (answer.code, answer.message.count("duplicate field")) == (400, 100)
    answer = await ask("POST", maps, text, fieldValidation="Warn")
    assert (answer.code, len(answer.warnings)) == (201, 100)


async def test_t02_compressed_bodies_are_not_unpacked(ask: RawRequests, maps: str) -> None:
    packed = gzip.compress(json.dumps(config_map("m")).encode())
    answer = await ask("POST", maps, packed, encoding="gzip")
    assert (answer.code, answer.reason) == (400, "BadRequest")
    bomb = gzip.compress(b" " * 200 * MIB)
    assert (await ask("POST", maps, bomb, encoding="gzip")).code == 400


async def test_t02_yaml_that_grows_by_its_aliases_is_refused(ask: RawRequests, maps: str) -> None:
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata: {name: y}", "a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    answer = await ask("PATCH", f"{maps}/y", "\n".join(lines).encode(), media=APPLY_PATCH, fieldManager="m")
    assert answer.code == 400
    assert answer.message == (
        "error decoding YAML: error converting YAML to JSON: yaml: document contains excessive aliasing"
    )


async def test_t02_numbers_that_fit_into_no_field_are_refused(ask: RawRequests, pods: str) -> None:
    answer = await ask("POST", pods, pod("i", priority=10**400))
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert answer.message == (
        'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number 1'
        + "0" * 400
        + " into Go struct "
        "field PodSpec.spec.priority of type int32"
    )


async def test_t02_an_indexed_job_has_at_most_a_hundred_thousand_pods_at_once(ask: RawRequests, namespace: str) -> None:
    template = {
        "spec": {"restartPolicy": "Never", "schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}
    }
    spec = {"completionMode": "Indexed", "completions": 10**9, "parallelism": 10**9, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    answer = await ask("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
    assert answer.code == 422
    why = "must be less than or equal to 100000 when completion mode is Indexed"
    assert answer.message == f'Job.batch "j" is invalid: spec.parallelism: Invalid value: 1000000000: {why}'


async def test_t02_long_selectors_are_answered(ask: RawRequests, maps: str) -> None:
    await ask("POST", maps, config_map("m", labels={"a": "v7"}))
    values = ",".join(f"v{index}" for index in range(5_000))
    answer = await ask("GET", maps, labelSelector=f"a in ({values})")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["m"]
    answer = await ask("GET", maps, labelSelector=",".join(f"!k{index}" for index in range(5_000)))
    assert "m" in [item["metadata"]["name"] for item in answer.body["items"]]
