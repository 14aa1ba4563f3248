"""Why a container's slices cannot be prepared now. The kubelet shows the text and tries again.

PrestartError
├── NotRecorded      the kubelet has written down no container with these ids
├── NoClaim          the scheduler made no claim for this container, or it is being deleted
├── Overlap          the claim's place is taken and the node has no other
└── NotMade          the hardware, the disk or the API did not do its part
"""

from __future__ import annotations

from typing import ClassVar


class PrestartError(Exception):
    reason: ClassVar[str] = "NotPrepared"


class NotRecorded(PrestartError):
    reason = "NotRecorded"


class NoClaim(PrestartError):
    reason = "NoClaim"


class Overlap(PrestartError):
    reason = "Overlap"


class NotMade(PrestartError):
    reason = "NotMade"
