"""The GPUs that the NVIDIA driver shows to this process.

Five functions of the library are called directly. The usual binding (nvidia-ml-py) takes more memory than all the rest
of this process.
"""

from __future__ import annotations

import ctypes

from apportion.reserve.errors import Misconfigured

LIBRARY = "libnvidia-ml.so.1"
_SUCCESS, _UUID_CHARACTERS = 0, 96


def uuids() -> list[str]:
    """In the order of the driver; raises Misconfigured if the driver cannot be asked."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise Misconfigured(
            f"{LIBRARY} is not in this container: the node has no NVIDIA driver, or the runtime class of the pod does "
            "not give containers their GPUs (Config kai-config, spec.binder.resourceReservation.runtimeClassName)"
        ) from None
    _call(library, "nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return [_uuid(library, index) for index in range(count.value)]
    finally:
        library.nvmlShutdown()


def _uuid(library: ctypes.CDLL, index: int) -> str:
    device = ctypes.c_void_p()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
    text = ctypes.create_string_buffer(_UUID_CHARACTERS)
    _call(library, "nvmlDeviceGetUUID", device, text, ctypes.c_uint(_UUID_CHARACTERS))
    return text.value.decode()


def _call(library: ctypes.CDLL, function: str, *arguments: object) -> None:
    code = library[function](*arguments)
    if code != _SUCCESS:
        library.nvmlErrorString.restype = ctypes.c_char_p
        text = library.nvmlErrorString(code) or b"unknown error"
        raise Misconfigured(f"NVML: {function}: {text.decode()}: check the driver of this node with nvidia-smi")
