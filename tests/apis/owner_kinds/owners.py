"""Manifests as people write them for each framework, and the group that a pod of them gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import yaml

from apportion.apis.owner_kinds import grouping, rows, table
from apportion.apis.owner_kinds.grouping import PodMembership

Json = dict[str, Any]


def owner(text: str) -> Json:
    found: Json = yaml.safe_load(text)
    return found


def member(*chain: str | Json, configuration: str = "", **labels: str) -> PodMembership:
    """The group of a pod with these labels whose owners these are; the fields that are kept of them say the same."""
    entries = yaml.safe_load(configuration)[rows.KEY] if configuration else ()
    kinds, problems = table.shipped().extended_by(entries)
    assert problems == []
    owners = [owner(each) if isinstance(each, str) else each for each in chain]
    found = grouping.membership(owners, labels, kinds)
    from_kept = grouping.membership([kept(each, kinds) for each in owners], labels, kinds)
    assert replace(from_kept, owner=None) == replace(found, owner=None)
    return found


def kept(body: Json, kinds: table.OwnerKinds) -> Json:
    """What a cache holds of an owner."""
    group, _, _ = str(body.get("apiVersion", "")).rpartition("/")
    if (group, body["kind"]) not in kinds:
        return body
    found: Json = msgspec.json.decode(msgspec.json.encode(body), type=kinds.owner_type(group, body["kind"]))
    return found
