"""G01 to G03, G12, D03 to D05: which shares are admitted, and what admission adds to their pods."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from apportion.admission import json_diff
from apportion.admission.shares import Sharing
from apportion.apis import names
from apportion.apis.errors import InputError
from apportion.core.catalog import Catalog, Model
from tests.admission.samples import created, updated
from tests.builders.pods import container, pod

Json = dict[str, Any]

ON = Sharing(on=True)
FRACTION = {"gpu-fraction": "0.5"}
VISIBLE = names.VISIBLE_DEVICES
VOID = {"name": VISIBLE, "value": "void"}
PREFIX = names.SHARED_GPU_CONFIG_MAP


def sharer(annotations: Json, *containers: Json, init: list[Json] | None = None, name: str = "w", **more: Any) -> Json:
    listed = list(containers) or [container()]
    return pod(name, containers=listed, init=init or [], annotations=annotations, schedulerName="kai-scheduler", **more)


def shared(body: Json, sharing: Sharing = ON) -> Json:
    return created(body, sharing=sharing)


def references(config_map: str) -> list[Json]:
    return [
        {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": name}}}
        for name in ("NVIDIA_VISIBLE_DEVICES", "GPU_PORTION", "RUNAI_NUM_OF_GPUS")
    ]


def environments(body: Json) -> dict[str, list[Json]]:
    listed = [*body["spec"].get("initContainers", []), *body["spec"]["containers"]]
    return {each["name"]: each.get("env", []) for each in listed}


def prefix_of(body: Json) -> str:
    found: str = body["metadata"]["annotations"][PREFIX]
    return found


GPU = {"nvidia.com/gpu": "1"}
FOREIGN = ("\u0660.\u0665", "\uff10.\uff15", "0.\u0665", ".\uff15")  # digits of other scripts
VALIDATOR: dict[str, tuple[Json, str | None]] = {
    # KAI Scheduler's own cases, and what is said to each; None: admitted.
    "whole gpu": (sharer({}, container(limits={"nvidia.com/gpu": "2"})), None),
    "whole gpus in milli": (sharer({}, container(limits={"nvidia.com/gpu": "2000m"})), None),
    "whole gpus of two containers": (sharer({}, container(limits=GPU), container("b", limits=GPU)), None),
    "fraction": (sharer(FRACTION), None),
    "memory": (sharer({"gpu-memory": "1000"}), None),
    "fraction of two devices": (sharer({"gpu-fraction": "0.3", "gpu-fraction-num-devices": "2"}), None),
    "memory of two devices": (sharer({"gpu-memory": "1000", "gpu-fraction-num-devices": "2"}), None),
    "mps with a fraction": (sharer(FRACTION | {"mps": "true"}), None),
    "fraction and whole gpu": (
        sharer(FRACTION, container(limits=GPU)),
        "spec.containers[0].resources.limits[nvidia.com/gpu]: 1: the pod also has annotation gpu-fraction",
    ),
    "fraction and whole gpu of an init container": (
        sharer(FRACTION, init=[container("first", limits=GPU)]),
        "spec.initContainers[0].resources.limits[nvidia.com/gpu]: 1: the pod also has annotation gpu-fraction",
    ),
    "memory and whole gpu": (
        sharer({"gpu-memory": "1000"}, container(), container("b", limits=GPU)),
        "spec.containers[1].resources.limits[nvidia.com/gpu]: 1: the pod also has annotation gpu-memory",
    ),
    "fraction and memory": (
        sharer(FRACTION | {"gpu-memory": "1000"}),
        "metadata.annotations[gpu-fraction]: '0.5': use either gpu-fraction or gpu-memory",
    ),
    "devices without a share": (
        sharer({"gpu-fraction-num-devices": "2"}),
        "metadata.annotations[gpu-fraction-num-devices]: '2': requires gpu-fraction or gpu-memory",
    ),
    "memory is no number": (
        sharer({"gpu-memory": "much"}),
        "metadata.annotations[gpu-memory]: 'much': must be a whole number of MiB above 0",
    ),
    "no memory": (
        sharer({"gpu-memory": "0"}),
        "metadata.annotations[gpu-memory]: '0': must be a whole number of MiB above 0",
    ),
    "fraction is no number": (
        sharer({"gpu-fraction": "half"}),
        "metadata.annotations[gpu-fraction]: 'half': must be a decimal number above 0 and below 1",
    ),
    "no fraction": (
        sharer({"gpu-fraction": "0"}),
        "metadata.annotations[gpu-fraction]: '0': must be a decimal number above 0 and below 1",
    ),
    "negative fraction": (
        sharer({"gpu-fraction": "-0.5"}),
        "metadata.annotations[gpu-fraction]: '-0.5': must be a decimal number above 0 and below 1",
    ),
    "fraction above 1": (
        sharer({"gpu-fraction": "1.5"}),
        "metadata.annotations[gpu-fraction]: '1.5': must be a decimal number above 0 and below 1",
    ),
}
OURS: dict[str, tuple[Json, str | None]] = {
    # What it lets through, or decides otherwise.
    "quantity of nothing": (sharer(FRACTION, container(limits={"nvidia.com/gpu": "0"})), None),
    "mps without a share": (sharer({"mps": "true"}), None),
    "smallest fraction": (sharer({"gpu-fraction": "0.01"}), None),
    "largest fraction": (sharer({"gpu-fraction": ".999"}), None),
    **{
        f"fraction {value}": (
            sharer({"gpu-fraction": value}),
            f"metadata.annotations[gpu-fraction]: {value!r}: must be",
        )
        for value in (
            "1",
            "1.0",
            "NaN",
            "inf",
            "5e-1",
            "0x0.8",
            "0.5555",
            "0.001",
            "0.009",
            "+0.5",
            "0,5",
            "",
            " 0.5",
            *FOREIGN,
        )
    },
    **{
        f"memory {value}": (sharer({"gpu-memory": value}), f"metadata.annotations[gpu-memory]: {value!r}: ")
        for value in ("-1", "1Gi", "1.5", "1e3", "", "01", "1000000000000", "9" * 30, "1\u0660\u0660", "\uff11")
    },
    **{
        f"devices {value}": (
            sharer(FRACTION | {"gpu-fraction-num-devices": value}),
            f"metadata.annotations[gpu-fraction-num-devices]: {value!r}: must be a whole number from 1 to 64",
        )
        for value in ("0", "two", "-1", "1.5", "65", "1\u0660", "\uff12")
    },
    "unknown container": (
        sharer(FRACTION | {"gpu-fraction-container-name": "nobody"}, container("a"), init=[container("b")]),
        "metadata.annotations[gpu-fraction-container-name]: 'nobody': no such container; the containers of",
    ),
    "fraction and mig device": (
        sharer(FRACTION, container(limits={"nvidia.com/mig-1g.5gb": "1"})),
        "spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]: 1: the pod also has annotation gpu-fraction",
    ),
    "memory and slice": (
        sharer({"gpu-memory": "1000"}, init=[container("first", requests={"mig.das.com/1g.5gb": "2"})]),
        "spec.initContainers[0].resources.requests[mig.das.com/1g.5gb]: 2: the pod also has annotation gpu-memory",
    ),
    "preset node": (
        sharer(FRACTION, nodeName="n1"),
        "spec.nodeName: 'n1': a pod with a GPU share must be placed by the scheduler",
    ),
    "own variable": (
        sharer(FRACTION, container(env=[{"name": VISIBLE, "value": "all"}])),
        "spec.containers[0].env[NVIDIA_VISIBLE_DEVICES]: 'all': is set at admission",
    ),
    "no gpu for the container with the share": (
        sharer(FRACTION, container(env=[VOID])),
        "spec.containers[0].env[NVIDIA_VISIBLE_DEVICES]: 'void': is set at admission",
    ),
    "own portion": (
        sharer(FRACTION, container(env=[{"name": "GPU_PORTION", "value": "1"}])),
        "spec.containers[0].env[GPU_PORTION]: '1': is set at admission",
    ),
    "variable of another container": (
        sharer(FRACTION, container(), container("b", env=[{"name": VISIBLE, "value": "0"}])),
        "spec.containers[1].env[NVIDIA_VISIBLE_DEVICES]: '0': the share of the pod belongs to another container",
    ),
    "reference of another container": (
        sharer(
            FRACTION | {PREFIX: "w-abcdefg-shared-gpu", "gpu-fraction-container-name": "main"},
            container(),
            container("b", env=references("w-abcdefg-shared-gpu-1")),
        ),
        "spec.containers[1].env[NVIDIA_VISIBLE_DEVICES]: {'configMapKeyRef': {'name': 'w-abcdefg-shared-gpu-1'",
    ),
    "foreign config map": (
        sharer(FRACTION | {PREFIX: "mine"}),
        "metadata.annotations[runai/shared-gpu-configmap]: 'mine': is set at admission; remove the annotation",
    ),
    **{
        f"prefix of another pod: {given}": (
            sharer(FRACTION | {PREFIX: given}, container(env=references(f"{given}-0"))),
            f"metadata.annotations[runai/shared-gpu-configmap]: '{given}': is set at admission; remove the annotation",
        )
        for given in ("v-abcdefg-shared-gpu", "ww-abcdefg-shared-gpu", "w-w-abcdefg-shared-gpu")
    },
    "reference to a foreign config map": (
        sharer(FRACTION | {PREFIX: "w-abcdefg-shared-gpu"}, container(env=references("v-abcdefg-shared-gpu-0"))),
        "spec.containers[0].env[NVIDIA_VISIBLE_DEVICES]: {'configMapKeyRef': {'name': 'v-abcdefg-shared-gpu-0'",
    ),
}


@pytest.mark.parametrize("case", sorted(VALIDATOR | OURS))
def test_g02_g03_d04_what_can_never_be_right_is_refused_with_field_value_and_fix(case: str) -> None:
    body, said = (VALIDATOR | OURS)[case]
    if said is None:
        shared(body)
        return
    with pytest.raises(InputError, match=re.escape(said)):
        shared(body)


@pytest.mark.parametrize("annotations", [FRACTION, {"gpu-memory": "1000"}, {"gpu-fraction": "nonsense"}])
def test_g01_shares_are_refused_while_sharing_is_off(annotations: Json) -> None:
    body = sharer(annotations)
    (name,) = annotations
    said = f"metadata.annotations[{name}]: {annotations[name]!r}: GPU sharing is switched off"
    for off in (Sharing(), Sharing(on=False)):
        with pytest.raises(InputError, match=re.escape(said)) as refused:
            shared(body, off)
        assert "spec.admission.gpuSharing to true in the Config kai-config" in str(refused.value)
    other = pod("w", containers=[container()], annotations=annotations)
    assert created(other) == other


def test_g02_d04_memory_is_refused_only_above_the_largest_gpu_that_is_known() -> None:
    largest = Catalog.shipped().largest_memory_mib()
    shared(sharer({"gpu-memory": str(largest)}))
    above = sharer({"gpu-memory": str(largest + 1)})
    with pytest.raises(InputError, match=rf"no known GPU has more than {largest} MiB; request at most this much"):
        shared(above)
    shared(above, Sharing(on=True, models=Catalog([Model("larger", (), largest + 1)])))


def test_g03_the_first_container_gets_references_and_the_others_nothing() -> None:
    body = sharer(
        FRACTION,
        container("a", env=[{"name": "A", "value": "b"}]),
        container("b"),
        container("c", env=[{"name": VISIBLE, "value": "none"}]),
        init=[container("first")],
        name="trainer",
    )
    after = shared(body)
    prefix = prefix_of(after)
    assert re.fullmatch(r"trainer-[a-z0-9]{7}-shared-gpu", prefix)
    assert environments(after) == {
        "first": [VOID],
        "a": [{"name": "A", "value": "b"}, *references(f"{prefix}-0")],
        "b": [VOID],
        "c": [{"name": VISIBLE, "value": "none"}],
    }
    changed = {each["path"] for each in json_diff.difference(body, after)}
    assert all(path.startswith("/metadata/annotations") or "/env" in path for path in changed)


@pytest.mark.parametrize(("chosen", "index"), [("a", "0"), ("b", "1"), ("first", "i0"), ("second", "i1")])
def test_g03_the_named_container_has_the_share(chosen: str, index: str) -> None:
    listed = [container("a"), container("b")]
    init = [container("first"), container("second")]
    after = shared(sharer({"gpu-memory": "2000", "gpu-fraction-container-name": chosen}, *listed, init=init))
    expected = {name: [VOID] for name in ("first", "second", "a", "b")}
    assert environments(after) == expected | {chosen: references(f"{prefix_of(after)}-{index}")}


@pytest.mark.parametrize(
    ("metadata", "begins"),
    [
        ({"name": "x" * 200}, "x" * 39),
        ({"name": "a.b-" + "x" * 34 + "-.y"}, "a.b-" + "x" * 34),
        ({"generateName": "set-"}, "set"),
    ],
)
def test_g03_names_of_config_maps_are_short_and_begin_as_the_pod(metadata: Json, begins: str) -> None:
    body = sharer(FRACTION)
    body["metadata"] = metadata | {"annotations": dict(FRACTION)}
    first, second = shared(body), shared(body)
    assert prefix_of(first).startswith(f"{begins}-")
    assert len(f"{prefix_of(first)}-i999") <= 63
    assert prefix_of(first) != prefix_of(second)


@pytest.mark.parametrize(
    "metadata", [{"name": "w"}, {"name": "x" * 60}, {"name": "a." + "b-" * 20 + "c"}, {"generateName": "set-"}]
)
def test_d05_a_second_review_accepts_the_prefix_of_the_first(metadata: Json) -> None:
    body = sharer(FRACTION)
    body["metadata"] = metadata | {"annotations": dict(FRACTION)}
    first = shared(body)
    assert shared(first) == first
    copied = copy.deepcopy(first)
    copied["metadata"]["name"] = "copy"
    with pytest.raises(
        InputError, match="remove the annotation, and the variables NVIDIA_VISIBLE_DEVICES, GPU_PORTION"
    ):
        shared(copied)


def test_d05_a_second_review_changes_nothing_and_covers_new_containers() -> None:
    first = shared(sharer(FRACTION, container("a"), container("b"), init=[container("first")]))
    assert shared(first) == first
    injected = copy.deepcopy(first)
    injected["spec"]["containers"].append(container("proxy"))
    assert environments(shared(injected))["proxy"] == [VOID]


def test_g03_d05_the_share_stays_with_its_container_if_another_is_inserted_before_it() -> None:
    first = shared(sharer(FRACTION, container("a")))
    injected = copy.deepcopy(first)
    injected["spec"]["containers"].insert(0, container("proxy"))
    after = shared(injected)
    assert environments(after) == {"proxy": [VOID], "a": references(f"{prefix_of(first)}-1")}
    assert after["metadata"]["annotations"]["gpu-fraction-container-name"] == "a"
    assert shared(after) == after


def test_g12_a_runtime_class_is_set_unless_the_pod_has_one() -> None:
    sharing = Sharing(on=True, runtime_class="nvidia")
    assert shared(sharer(FRACTION), sharing)["spec"]["runtimeClassName"] == "nvidia"
    assert shared(sharer(FRACTION, runtimeClassName="own"), sharing)["spec"]["runtimeClassName"] == "own"
    assert "runtimeClassName" not in shared(sharer(FRACTION))["spec"]
    assert "runtimeClassName" not in shared(sharer({}), sharing)["spec"]


def test_d05_an_update_keeps_what_was_added() -> None:
    manifest = sharer(FRACTION, container("a", env=[{"name": "A", "value": "b"}]), container("b"))
    live = shared(manifest, Sharing(on=True, runtime_class="nvidia"))
    live["spec"]["containers"][0]["env"].append({"name": "ADDED", "value": "later"})
    replaced = copy.deepcopy(manifest)
    replaced["spec"]["containers"][0]["env"].append({"name": "ADDED", "value": "later"})
    assert updated(replaced, live) == live
    image = copy.deepcopy(live)
    image["spec"]["containers"][0]["image"] = "other"
    assert updated(image, live) == image


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpu-fraction": "0.6"}, "metadata.annotations[gpu-fraction]: '0.6'"),
        ({"gpu-fraction": None, "gpu-memory": "2000"}, "metadata.annotations[gpu-fraction]: ''"),
        ({"gpu-fraction-num-devices": "2"}, "metadata.annotations[gpu-fraction-num-devices]: '2'"),
        ({"gpu-fraction-container-name": "b"}, "metadata.annotations[gpu-fraction-container-name]: 'b'"),
        ({PREFIX: "w-aaaaaaa-shared-gpu"}, "metadata.annotations[runai/shared-gpu-configmap]: 'w-aaaaaaa-shared-gpu'"),
    ],
)
def test_g02_an_update_of_the_share_is_refused_and_says_to_delete_the_pod(change: Json, said: str) -> None:
    live = shared(sharer(FRACTION, container("a"), container("b")))
    new = copy.deepcopy(live)
    annotations = new["metadata"]["annotations"] | change
    new["metadata"]["annotations"] = {name: value for name, value in annotations.items() if value is not None}
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        updated(new, live)
    assert "delete the pod first" in str(refused.value)


DOCUMENT = {
    "gpu-sharing": ({"gpu-fraction": "0.5"}, "0"),
    "gpu-memory": ({"gpu-memory": "2000"}, "0"),
    "non-default container": ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu-workload"}, "1"),
}


@pytest.mark.parametrize("case", sorted(DOCUMENT))
def test_x01_pods_of_the_document_get_exactly_what_the_binder_needs(case: str) -> None:
    annotations, index = DOCUMENT[case]
    workload = {"name": "gpu-workload", "image": "ubuntu", "args": ["sleep", "infinity"]}
    listed = [container("other"), workload] if index == "1" else [workload]
    body = sharer(annotations, *listed, name="gpu-sharing", labels={"kai.scheduler/queue": "default-queue"})
    after = shared(body)
    prefix = prefix_of(after)
    assert after["metadata"] == body["metadata"] | {"annotations": annotations | {PREFIX: prefix}}
    expected = copy.deepcopy(body["spec"])
    for each in expected["containers"]:
        each["env"] = references(f"{prefix}-{index}") if each["name"] == "gpu-workload" else [VOID]
    assert after["spec"] == expected


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"annotations": {"gpu-fraction": 5}}},
        {"metadata": {"annotations": FRACTION}, "env": "x"},
        {"metadata": {"annotations": FRACTION}, "env": ["x"]},
        {"metadata": {"annotations": FRACTION | {PREFIX: 5}}},
        {
            "metadata": {"name": "w", "annotations": FRACTION | {PREFIX: "w-abcdefg-shared-gpu"}},
            "env": [{"name": VISIBLE, "valueFrom": 5}],
        },
    ],
)
def test_t02_shares_of_wrong_types_are_refused(body: Json) -> None:
    main = container() | ({"env": body["env"]} if "env" in body else {})
    spec = {"schedulerName": "kai-scheduler", "containers": [main]}
    with pytest.raises(InputError):
        shared({"metadata": copy.deepcopy(body["metadata"]), "spec": spec})
    shared({"metadata": {"annotations": dict(FRACTION)}, "spec": {"schedulerName": "kai-scheduler"}})
