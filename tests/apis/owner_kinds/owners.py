"""Manifests as people write them for each framework, and the group that a pod of them gets."""

from __future__ import annotations

from typing import Any

import yaml

from apportion.apis.owner_kinds import grouping, table
from apportion.apis.owner_kinds.grouping import PodMembership

Json = dict[str, Any]


def owner(text: str) -> Json:
    found: Json = yaml.safe_load(text)
    return found


def member(*chain: str | Json, configuration: str = "", **labels: str) -> PodMembership:
    """The group of a pod with these labels whose owners these are."""
    kinds = table.shipped().extended(configuration) if configuration else table.shipped()
    owners = [owner(each) if isinstance(each, str) else each for each in chain]
    return grouping.membership(owners, labels, kinds)
