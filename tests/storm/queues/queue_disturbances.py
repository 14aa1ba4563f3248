"""What happens besides: leaders are killed, nodes cordoned, queues changed, deleted and created again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from tests.environments.api import RefusedError
from tests.storm.disturbances import Disturbances
from tests.storm.queues.queue_tree import LEAVES, NAMES, QUEUES, TREE, a_change
from tests.story.serving_cluster import ServingCluster

LEASE = "/apis/coordination.k8s.io/v1/namespaces/das-operator/leases/das-scheduler"
NODES = "/api/v1/nodes"


class QueueDisturbances(Disturbances):
    """Slower than the storm of slices, so that a leader does something before it is killed."""

    pause = 5.0

    def actions(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            (4, self._kill_the_leader),
            (3, self._kill_a_plane),
            (3, self._stop_a_plane),
            (4, self._change_a_queue),
            (1, self._delete_a_queue),
            (3, self._cordon_or_uncordon),
            (1, self._delete_a_node),
            (1, self._delete_a_namespace),
        ]

    def settle(self) -> None:
        """Every node can be used again."""
        for node in self._api.items(NODES):
            self._cordon(node["metadata"]["name"], wanted=False)

    def _kill_a_plane(self) -> None:
        keep_logs(self._cluster)
        super()._kill_a_plane()

    def _kill_the_leader(self) -> None:
        keep_logs(self._cluster)
        holder = self._api.get(LEASE)["spec"].get("holderIdentity") or ""
        for pid in pids(self._cluster, holder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.counts["leaders killed"] += 1

    def _change_a_queue(self) -> None:
        with suppress(RefusedError):  # it is deleted at this moment
            self._api.merge(f"{QUEUES}/{self._dice.choice(NAMES)}", a_change(self._dice))
            self.counts["queues changed"] += 1

    def _delete_a_queue(self) -> None:
        queue = self._dice.choice([each for each in TREE if each["metadata"]["name"] in LEAVES])
        self._api.delete(f"{QUEUES}/{queue['metadata']['name']}")
        self.counts["queues deleted"] += 1
        self._stopping.wait(self._dice.uniform(0, 10))
        self._api.create(QUEUES, queue)

    def _cordon_or_uncordon(self) -> None:
        node = self._dice.choice(self._api.items(NODES))
        self._cordon(node["metadata"]["name"], wanted=not node["spec"].get("unschedulable", False))

    def _cordon(self, name: str, *, wanted: bool) -> None:
        with suppress(RefusedError):
            self._api.merge(f"{NODES}/{name}", {"spec": {"unschedulable": wanted or None}})
            self.counts["cordoned" if wanted else "uncordoned"] += 1


def keep_logs(cluster: ServingCluster) -> None:
    """Of the planes, beside the log of the cluster: a kubelet keeps those of the last two containers."""
    for log in cluster.nodes_dir.glob("*/var/log/pods/das-operator_*/*/*.log"):
        with suppress(FileNotFoundError):
            (cluster.log.parent / f"{log.parent.parent.name}-{log.name}").write_bytes(log.read_bytes())


def pids(cluster: ServingCluster, holder: str) -> list[int]:
    """The processes of the pod that a lease names."""
    return [
        int(pid)
        for pod in cluster.plane_pods()
        if holder and pod["metadata"]["name"] in holder
        for procs in cluster.nodes_dir.glob(f"*/sys/fs/cgroup/kubepods/pod{pod['metadata']['uid']}/*/cgroup.procs")
        for pid in procs.read_text().split()
    ]
