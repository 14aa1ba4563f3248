"""What the binder tells: events on pods, and a line in its log for every decision."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from apportion.apis.custom_resources.bind_requests import BindRequest
from apportion.apis.pods import Pod
from apportion.binder.joining import Held
from apportion.cluster.events import Recorder, Regarding

log = logging.getLogger(__name__)

SCHEDULED = "Scheduled"
BINDING_FAILED = "BindingFailed"
RESERVATION_LOST = "GPUReservationLost"
GPU_CHANGED = "GPUReservationChanged"


class Reports:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def bound(self, pod: Pod, node: str, held: Sequence[Held]) -> None:
        meta = pod.metadata
        gpus = ", ".join(map(str, held))
        self._recorder.record(
            _regarding(pod), SCHEDULED, f"Successfully assigned {meta.namespace}/{meta.name} to {node}: {gpus}"
        )
        log.info(
            "bound pod %s/%s to node %s: %s, GPU reservation of group %s",
            *(meta.namespace, meta.name, node, gpus, ", ".join(each.group for each in held)),
        )

    def failed(self, request: BindRequest, reason: str) -> None:
        spec, namespace = request.spec, request.metadata.namespace
        regarding = Regarding.pod(namespace, spec.pod_name, spec.pod_uid)
        self._recorder.warn(regarding, BINDING_FAILED, f"Not bound to node {spec.selected_node}: {reason}")
        log.warning(
            "pod %s/%s was not bound to node %s, GPU %s, reservation of group %s: %s",
            *(namespace, spec.pod_name, spec.selected_node),
            *(", ".join(spec.selected_devices), ", ".join(spec.selected_gpu_groups), reason),
        )

    def restored(self, reservation: Pod, sharers: Iterable[Pod]) -> None:
        text = f"The reservation pod of the shared GPU was lost and created again as {reservation.metadata.name}"
        for pod in sharers:
            self._recorder.warn(_regarding(pod), RESERVATION_LOST, text)

    def changed(self, reservation: Pod, sharers: Iterable[Pod], held: str, used: Iterable[str]) -> None:
        """The reservation holds another GPU than the pods have that share it."""
        name, others = reservation.metadata.name, ", ".join(sorted(used))
        text = (
            f"GPU reservation {name} holds GPU {held}, but pods of its group run on GPU {others}; no pod can join them"
        )
        log.warning("node %s: %s", reservation.spec.node_name, text)
        for pod in (reservation, *sharers):
            self._recorder.warn(_regarding(pod), GPU_CHANGED, text)


def _regarding(pod: Pod) -> Regarding:
    return Regarding.pod(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
