"""The core's answers about a recorded world, beside kube-scheduler's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.request import parse_pod
from apportion.apis.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from apportion.core import filters
from apportion.core.catalog import Catalog
from apportion.core.fleet import Fleet
from apportion.core.volumes import Storage
from apportion.view import volumes
from apportion.view.nodes import node_facts

JSON = dict[str, Any]


@dataclass(frozen=True)
class Disagreement:
    """One pod about which the two differ."""

    seed: int
    pod: str
    too_many: frozenset[str]
    too_few: frozenset[str]
    message: str

    def __str__(self) -> str:
        return (
            f"world {self.seed}, {self.pod}: kube-scheduler refuses {sorted(self.too_many)}, "
            f"the core refuses {sorted(self.too_few)} ({self.message})"
        )


def disagreements(world: JSON) -> list[Disagreement]:
    fleet = _fleet(world)
    found = []
    for asked in world["asked"]:
        theirs = frozenset(asked["feasible"])
        ours = frozenset(filters.feasible(fleet, parse_pod(_pod(asked["pod"]))).nodes)
        if ours != theirs:
            name = asked["pod"]["metadata"]["name"]
            found.append(Disagreement(world["seed"], name, ours - theirs, theirs - ours, asked["message"]))
    return found


def _fleet(world: JSON) -> Fleet:
    fleet = Fleet(Catalog.shipped())
    for name, labels in world["namespaces"].items():
        fleet.set_namespace(name, labels)
    for raw in world["nodes"]:
        fleet.set_node(node_facts(msgspec.convert(raw, Node)))
    for raw in world["running"]:
        if raw["status"]["phase"] not in {"Succeeded", "Failed"}:
            fleet.add_pod(parse_pod(_pod(raw)), raw["spec"]["nodeName"])
    fleet.storage = Storage(
        volume_claims={
            _key(raw): volumes.volume_claim_facts(msgspec.convert(raw, PersistentVolumeClaim))
            for raw in world["claims"]
        },
        volumes={_key(raw): volumes.volume_facts(msgspec.convert(raw, PersistentVolume)) for raw in world["volumes"]},
        classes={
            _key(raw): volumes.storage_class_facts(msgspec.convert(raw, StorageClass)) for raw in world["classes"]
        },
    )
    return fleet


def _key(raw: JSON) -> str:
    meta = raw["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


def _pod(raw: JSON) -> Pod:
    # Recordings have no uids; a name is unique in its world.
    metadata = raw["metadata"] | {"uid": f"{raw['metadata']['namespace']}-{raw['metadata']['name']}"}
    return msgspec.convert(raw | {"metadata": metadata}, Pod)
