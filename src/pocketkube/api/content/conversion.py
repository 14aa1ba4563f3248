"""The versions of one object: what is stored, and what a client sees who asks for another version.

Custom kinds convert by renaming alone (strategy None). Among the built-in kinds only events are shown by
two API groups, under different field names.
"""

from __future__ import annotations

from typing import Any

from pocketkube.api.registry import Resource
from pocketkube.api.storage.store import Bucket

# core name -> events.k8s.io name
_EVENT_FIELDS = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_EVENT_FIELDS_BACK = {new: old for old, new in _EVENT_FIELDS.items()}


class Versions:
    """Which version of each bucket is stored, and how to come from one to another."""

    def __init__(self) -> None:
        self._custom: dict[Bucket, str] = {}

    def set_storage(self, bucket: Bucket, version: str) -> None:
        self._custom[bucket] = version

    def forget(self, bucket: Bucket) -> None:
        self._custom.pop(bucket, None)

    def is_stored(self, resource: Resource) -> bool:
        """Whether stored bytes can be served to clients of this resource as they are."""
        if resource.storage[0] != resource.group:
            return False
        return self._custom.get(Bucket(*resource.storage), resource.version) == resource.version

    def to_storage(self, resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
        if self.is_stored(resource):
            return obj
        bucket = Bucket(*resource.storage)
        if resource.group == "events.k8s.io":
            return {**_renamed(obj, _EVENT_FIELDS_BACK), "apiVersion": "v1"}
        version = self._custom[bucket]
        return {**obj, "apiVersion": f"{bucket.group}/{version}" if bucket.group else version}

    def from_storage(self, resource: Resource, obj: dict[str, Any]) -> dict[str, Any]:
        if self.is_stored(resource):
            return obj
        if resource.group == "events.k8s.io":
            obj = _renamed(obj, _EVENT_FIELDS)
        return {**obj, "apiVersion": resource.api_version}


def bucket_of(resource: Resource) -> Bucket:
    return Bucket(*resource.storage)


def _renamed(obj: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in obj.items()}
