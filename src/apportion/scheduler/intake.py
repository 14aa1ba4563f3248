"""Which of the pods that have no node are ours to place: they go to the backlog."""

from __future__ import annotations

from collections.abc import Callable

from apportion.apis import names
from apportion.apis.errors import InputError
from apportion.apis.identities import PodUID
from apportion.apis.pods import Pod
from apportion.scheduler.backlog import Backlog
from apportion.view.waiting import WaitingPod, WaitingPods


class Intake:
    """Gated pods and those that are held back are skipped; a pod with an invalid request gets an event that says so."""

    def __init__(
        self,
        waiting: WaitingPods,
        backlog: Backlog,
        *,
        on_offer: Callable[[], None],
        on_problem: Callable[[Pod, InputError], None],
    ) -> None:
        self._backlog = backlog
        self._on_offer, self._on_problem = on_offer, on_problem
        waiting.on_change(self._changed)

    def _changed(self, uid: PodUID, waiting: WaitingPod | None) -> None:
        if waiting is None or not _ours(waiting.pod):
            self._backlog.withdraw(uid)
            return
        request, problem = waiting.reading
        if waiting.held:
            self._backlog.withdraw(uid)
        elif problem is not None:
            self._backlog.withdraw(uid)
            self._on_problem(waiting.pod, problem)
        elif request is not None and self._backlog.offer(request):
            self._on_offer()


def _ours(pod: Pod) -> bool:
    return pod.spec.scheduler_name in names.OUR_SCHEDULERS and not pod.spec.scheduling_gates
