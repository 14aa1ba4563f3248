"""One profile, several spellings."""

from __future__ import annotations

import pytest

from apportion.apis import profiles
from apportion.apis.errors import ProfileError


@pytest.mark.parametrize(
    ("profile", "slice_name", "nvidia_name"),
    [
        ("1g.5gb", "mig.das.com/1g.5gb", "nvidia.com/mig-1g.5gb"),
        ("1g.5gb+me", "mig.das.com/1g.5gb-plus-me", "nvidia.com/mig-1g.5gb.me"),
        ("1g.24gb+me.all", "mig.das.com/1g.24gb-plus-me.all", "nvidia.com/mig-1g.24gb.me.all"),
        ("1g.24gb-me", "mig.das.com/1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
        ("2g.48gb+gfx", "mig.das.com/2g.48gb-plus-gfx", "nvidia.com/mig-2g.48gb.gfx"),
    ],
)
def test_s01_a_profile_is_the_same_in_every_spelling(profile: str, slice_name: str, nvidia_name: str) -> None:
    assert profiles.slice_resource(profile) == slice_name
    assert profiles.slice_profile(slice_name) == profile
    assert profiles.nvidia_resource(profile) == nvidia_name
    assert profiles.nvidia_profile(nvidia_name) == profile
    assert profiles.from_wire(profiles.to_wire(profile)) == profile


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "mig.das.com/", "nvidia.com/mig-", "cpu", "example.com/1g.5gb"])
def test_s01_other_resources_are_no_profiles(name: str) -> None:
    assert profiles.slice_profile(name) is None
    assert profiles.nvidia_profile(name) is None


def test_m01_memory_stands_in_the_name() -> None:
    assert profiles.memory_gb("1g.5gb+me") == 5
    assert profiles.memory_gb("7g.141gb") == 141
    assert profiles.compute("3g.20gb") == 3


@pytest.mark.parametrize("name", ["", "g.5gb", "1g", "1g.5gb ", "1g.5gb++me", "1c.1g.5gb", "1g.5GB"])
def test_s03_a_misspelt_profile_is_refused(name: str) -> None:
    with pytest.raises(ProfileError) as refused:
        profiles.memory_gb(name)
    assert refused.value.code == "MalformedProfile"
