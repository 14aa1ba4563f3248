"""The annotation `run.ai/mig.config` in its four formats, and the places that follow from it (F02)."""

from __future__ import annotations

import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apportion.apis import migconfig
from apportion.apis.errors import CatalogError, InputError
from apportion.apis.migconfig import LayoutEntry, MigConfigError
from apportion.core import layouts
from apportion.core.catalog import Catalog, Model

MEDIUM = (("2g.20gb", 0, 2), ("2g.20gb", 2, 2), ("2g.20gb", 4, 2), ("1g.10gb", 6, 1))
DIALECTS = {
    "places": [
        {"name": "2g.20gb", "position": 0, "size": 2},
        {"name": "2g.20gb", "position": 2, "size": 2},
        {"name": "2g.20gb", "position": 4, "size": 2},
        {"name": "1g.10gb", "position": 6, "size": 1},
    ],
    "position to profile": {"0": "2g.20gb", "2": "2g.20gb", "4": "2g.20gb", "6": "1g.10gb"},
    "names": ["2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb"],
    "profile to count": {"1g.10gb": 1, "2g.20gb": 3},
    "numbered, not placed": {0: "2g.20gb", 1: "2g.20gb", 2: "2g.20gb", 3: "1g.10gb"},
    "as resources": ["nvidia.com/mig-2g.20gb"] * 3 + ["nvidia.com/mig-1g.10gb"],
}


def h200() -> Model:
    model = Catalog.shipped().find("NVIDIA-H200", 71680)
    assert model is not None
    return model


def written(wanted: object, **more: object) -> str:
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": wanted, **more}
    text: str = yaml.safe_dump({"version": "v1", "mig-configs": {"selected": [entry]}})
    return text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_f02_every_format_gives_the_same_layout(dialect: str) -> None:
    selection = migconfig.parse(written(DIALECTS[dialect])).of(3)
    assert selection is not None
    assert selection.enabled
    assert layouts.lay_out(h200(), selection.layout) == MEDIUM


def test_f02_what_we_write_we_read() -> None:
    config = migconfig.parse(migconfig.render({1: MEDIUM}))
    selection = config.of(1)
    assert config.of(0) is None
    assert selection is not None
    assert layouts.lay_out(h200(), selection.layout) == MEDIUM


def test_f02_devices_are_chosen_by_number_and_the_last_entry_holds() -> None:
    config = migconfig.parse(
        """
        mig-configs:
          selected:
            - {devices: all, mig-devices: {1g.10gb: 7}}
            - {devices: [1, 2], mig-devices: {7g.80gb: 1}}
            - {devices: 3, mig-enabled: false}
        """
    )
    whole = config.of(3)
    assert whole is not None
    assert not whole.enabled
    assert [len(found.layout) for index in range(4) if (found := config.of(index))] == [7, 1, 1, 0]


def test_f02_the_full_profile_of_the_declared_h200_has_an_alias() -> None:
    assert layouts.lay_out(h200(), [LayoutEntry("7g.80gb")]) == (("7g.70gb", 0, 8),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not YAML"),
        ("2024-99-99", "is not YAML"),
        ("!!float abc", "is not YAML"),
        ("!!int ''", "is not YAML"),
        ("[" * 5000, "is not YAML"),
        (written({"1g.10gb": "\N{SUPERSCRIPT TWO}"}), "mig-devices"),
        ("mig-configs: {a: [], b: []}", "selected"),
        ("mig-configs: {selected: 5}", "use a list of entries"),
        (written(["1g"]), "mig-devices[0]"),
        (written({"1g.10gb": 1000}), "more than 64"),
        (written({"1g.10gb": True}), "use a number of 0 or more"),
        (written({"x": "1g.10gb"}), "mig-devices[x]"),
        (written(3), "use a list of profiles"),
        (written([], devices=["a"]), "devices"),
        (written([], **{"mig-enabled": "yes"}), "mig-enabled"),
        (written(["1g.10gb"], **{"mig-enabled": False}), "needs true"),
    ],
)
def test_f02_bad_annotations_are_refused_with_field_and_fix(text: str, said: str) -> None:
    with pytest.raises(MigConfigError) as error:
        migconfig.parse(text)
    assert said in str(error.value)


@given(st.text(max_size=200))
def test_f02_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        migconfig.parse(text)


@given(st.lists(st.sampled_from(["1g.10gb", "2g.20gb", "3g.40gb", "7g.70gb"]), max_size=9))
def test_f02_names_alone_find_places_whenever_there_are_some(wanted: list[str]) -> None:
    fits = sum({"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 4, "7g.70gb": 8}[name] for name in wanted)
    try:
        cuts = layouts.lay_out(h200(), [LayoutEntry(name) for name in wanted])
    except CatalogError:
        assert fits > 6  # below that everything of this model fits
        return
    covered = [unit for _, start, size in cuts for unit in range(start, start + size)]
    assert len(covered) == len(set(covered)) == fits
