"""GPU errors that the driver reports while the GPU still answers: XIDs and memory errors that cannot be corrected.

Some XIDs are the fault of a program and say nothing about the GPU. After any other one the GPU counts as
faulty until no further error was reported for a while: after a successful reset the agent need not be restarted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from apportion.apis.identities import DeviceUUID
from apportion.node.hardware.nvml.errors import RELOADED
from apportion.node.hardware.nvml.profiles import text

QUIET_SECONDS = 300.0
# Bad memory access, page fault, stopped processing, preemptive clean-up, video processor, context switch: a program's.
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
_EVENTS = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
_UNSUPPORTED = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound)

log = logging.getLogger(__name__)


class HealthWatch:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()  # several threads ask the driver
        self._events: Any = None
        self._watched: set[DeviceUUID] = set()
        self._faults: dict[DeviceUUID, tuple[str, float]] = {}

    def look(self, devices: Mapping[DeviceUUID, Any]) -> None:
        """Take in what was reported since the last look; `devices` are their handles."""
        try:
            with self._lock:
                self._watch(devices)
                while self._take():
                    pass
        except _UNSUPPORTED:  # an old driver: losing the GPU is then all that is seen
            return
        except pynvml.NVMLError as error:
            if error.value in RELOADED:
                raise
            # An error of one GPU: the others are healthy.
            log.warning("GPU error events cannot be read: %s", error)

    def fault(self, uuid: DeviceUUID) -> str:
        said, at = self._faults.get(uuid, ("", 0.0))
        if said and self._now() - at >= QUIET_SECONDS:
            self._faults.pop(uuid, None)
            log.info("%s is healthy again: no errors since: %s", uuid, said)
            return ""
        return said

    def forget(self) -> None:
        """The library was unloaded, and its event set with it."""
        self._events = None
        self._watched.clear()

    def _watch(self, devices: Mapping[DeviceUUID, Any]) -> None:
        if self._events is None:
            self._events = pynvml.nvmlEventSetCreate()
        for uuid, device in devices.items():
            if uuid not in self._watched:
                self._watched.add(uuid)
                try:
                    pynvml.nvmlDeviceRegisterEvents(device, _EVENTS, self._events)
                except _UNSUPPORTED:
                    log.info("%s does not support error events", uuid)

    def _take(self) -> bool:
        try:
            event = pynvml.nvmlEventSetWait_v2(self._events, 0)
        except pynvml.NVMLError_Timeout:
            return False
        if said := _meaning(event):
            uuid = DeviceUUID(text(pynvml.nvmlDeviceGetUUID(event.device)))
            log.warning("%s: %s", uuid, said)
            self._faults[uuid] = (said, self._now())
        return True


def _meaning(event: Any) -> str:
    if event.eventType == pynvml.nvmlEventTypeDoubleBitEccError:
        return "a memory error that cannot be corrected"
    if event.eventType == pynvml.nvmlEventTypeXidCriticalError and event.eventData not in APPLICATION_XIDS:
        return f"critical error XID {event.eventData}"
    return ""
