"""GPU models: the shipped table, discovered geometry above it, declared models under the same checks."""

from __future__ import annotations

import msgspec
import pytest

from apportion.apis.custom_resources.accelerators import AcceleratorProfile
from apportion.apis.errors import CatalogError, RequestError
from apportion.core.catalog import Catalog, Model, Profile
from tests.builders.accelerators import A100, CATALOG, model


def declared(*profiles: Profile, units: int = 8, memory_mib: int = 71680) -> Model:
    return Model("mine", ("My GPU",), memory_mib, units, profiles)


def test_every_shipped_model_passes_the_checks() -> None:
    catalog = Catalog.shipped()
    assert len(list(catalog)) > 25
    assert {"a100-40gb", "h100-80gb", "h200-141gb", "t4-16gb", "l40s-48gb"} <= {entry.id for entry in catalog}


@pytest.mark.parametrize(
    ("product", "memory", "found"),
    [
        ("NVIDIA A100-PCIE-40GB", None, "a100-40gb"),
        ("NVIDIA-A100-PCIE-40GB", None, "a100-40gb"),
        ("Tesla-T4", None, "t4-16gb"),
        ("NVIDIA RTX 6000 Ada Generation", None, "rtx-6000-ada-48gb"),
        ("NVIDIA H200", None, "h200-141gb"),
        ("NVIDIA-H200", None, "h200-70gb-emulated"),
        ("NVIDIA-H200", 144384, "h200-141gb"),
        ("NVIDIA-H200", 71680, "h200-70gb-emulated"),
    ],
)
def test_a_model_is_found_as_drivers_and_labels_spell_it(product: str, memory: int | None, found: str) -> None:
    known = CATALOG.find(product, memory)
    assert known is not None
    assert known.id == found


def test_an_unknown_product_is_not_found() -> None:
    assert CATALOG.find("Voodoo 2") is None


def test_uncertain_models_are_marked() -> None:
    assert model("NVIDIA B300").uncertain
    assert not model(A100).uncertain


def test_f02_the_70_gb_card_is_a_declared_model_with_an_alias() -> None:
    card = model("NVIDIA-H200")
    assert card.emulated
    assert card.memory_mib == 71680
    whole = card.profile("7g.80gb")
    assert whole is not None
    assert whole.name == "7g.70gb"


def test_s09_what_was_discovered_counts_more_than_the_table() -> None:
    found = [AcceleratorProfile(name="1g.5gb", size=1, starts=[0, 1, 2], limit=3)]
    seen = Model.from_discovery(A100, 40000, found, model(A100))
    profile = seen.profile("1g.5gb")
    assert profile is not None
    assert (profile.starts, profile.gi_profile_id, seen.memory_mib, seen.units) == ((0, 1, 2), 19, 40000, 8)
    assert [entry.name for entry in seen.profiles] == ["1g.5gb"]


def test_s09_the_reported_geometry_of_an_unknown_model_is_used() -> None:
    found = [AcceleratorProfile(name="2g.30gb", size=3, starts=[0, 3])]
    seen = Model.from_discovery("Mystery", 60000, found)
    assert (seen.units, seen.profiles[0].memory_gb, seen.profiles[0].most) == (6, 30, 2)


def test_a_declared_model_replaces_the_one_of_its_id() -> None:
    catalog = Catalog.shipped()
    catalog.declare(msgspec.structs.replace(model(A100), memory_mib=1))
    again = catalog.find(A100)
    assert again is not None
    assert again.memory_mib == 1


@pytest.mark.parametrize(
    ("broken", "field", "code"),
    [
        (declared(Profile("1g.5gb", 2, (0, 1))), "starts", "OverlappingStarts"),
        (declared(Profile("1g.5gb", 1, (0, 0))), "starts", "OverlappingStarts"),
        (declared(Profile("1g.5gb", 1, (8,))), "starts", "InvalidModel"),
        (declared(Profile("1g.5gb", 1, (-1,))), "starts", "InvalidModel"),
        (declared(Profile("1g.5gb", 1, ())), "starts", "InvalidModel"),
        (declared(Profile("1g.5gb", 0, (0,))), "size", "InvalidModel"),
        (declared(Profile("1g.5gb", 9, (0,))), "size", "InvalidModel"),
        (declared(Profile("1g.5gb", 1, (0,), limit=-1)), "limit", "InvalidModel"),
        (declared(Profile("one", 1, (0,))), "name", "InvalidModel"),
        (declared(Profile("1g.5gb", 1, (0,)), Profile("1g.5gb", 2, (0,))), "name", "DuplicateProfile"),
        (declared(units=1000), "units", "InvalidModel"),
        (declared(memory_mib=10**18), "memory_mib", "InvalidModel"),
    ],
)
def test_geometry_that_contradicts_itself_is_refused(broken: Model, field: str, code: str) -> None:
    with pytest.raises(CatalogError) as refused:
        Catalog([broken])
    assert refused.value.field.startswith("models[mine]")
    assert refused.value.field.endswith(field)
    assert refused.value.code == code


def test_d04_more_memory_than_any_gpu_has_is_refused() -> None:
    CATALOG.require_memory(80_000)
    with pytest.raises(RequestError) as refused:
        CATALOG.require_memory(10**9, "metadata.annotations[gpu-memory]")
    assert refused.value.code == "TooMuchMemory"
    assert refused.value.field == "metadata.annotations[gpu-memory]"
