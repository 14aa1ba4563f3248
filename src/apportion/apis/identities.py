"""Identities that must not be mistaken for each other: all are texts on the wire."""

from __future__ import annotations

from typing import NewType

PodUID = NewType("PodUID", str)
NodeName = NewType("NodeName", str)
QueueName = NewType("QueueName", str)
ClaimName = NewType("ClaimName", str)  # of an AllocationClaim
NO_NODE = NodeName("")
NO_POD = PodUID("")
DeviceUUID = NewType("DeviceUUID", str)  # of a GPU or of a MIG device, as the driver names it
