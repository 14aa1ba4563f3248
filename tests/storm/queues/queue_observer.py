"""Watches queues and groups from outside, and records every state that must never be.

A leader that was stopped for a moment can still carry out what it decided before, and it can see a change of a queue
before the observer does: pods, queues and events are different streams. So amounts of queues are those of `LATE`
seconds before and `LAG` seconds after: the largest limit, the smallest quota that limits let a queue use.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tests.environments.api import Api
from tests.storm.observer import PODS, follow
from tests.storm.queues.cluster_state import STORM, UNLIMITED, ClusterState, ObservedPod, ObservedQueue
from tests.storm.queues.queue_tree import QUEUES

Json = dict[str, Any]
GROUPS = "/apis/scheduling.run.ai/v2alpha2/podgroups"
EVENTS = "/api/v1/events"
LATE = 25.0
LAG = 5.0
HELD = 150.0  # how long a queue can be charged for a place that is held for a successor
RECLAIMED = re.compile(
    r"reclaimed for .+ of queue (?P<taker>\S+): queue (?P<queue>\S+) uses (?P<used>[\d.]+) GPUs? "
    r"and has a (?P<kind>fair share|quota) of (?P<most>[\d.]+) GPUs?"
)
PREEMPTED = re.compile(r"preempted for .+ of the same queue .+: its priority is (?P<theirs>\d+), .+ (?P<own>\d+)$")
REPAIRS = ("below its minimum", "claim", "agent", "node")  # what else evicts


class QueueObserver:
    """`violations` is empty as long as all is well; `counts` says how much was looked at."""

    def __init__(self, kubeconfig: Path, *, stale: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.state = ClusterState()
        self.longest_partial = 0.0
        self.history: list[str] = []
        self._kubeconfig, self._stale, self._clock = kubeconfig, stale, clock
        self._orphaned: set[str] = set()  # pods whose Node object was deleted under them
        self._known: dict[str, ObservedPod] = {}  # also pods that are gone
        self._evicted: set[str] = set()
        self._events: set[str] = set()
        self._used: dict[str, int] = {}
        self._uses: dict[str, _Recent] = {}
        self._limits: dict[str, _Recent] = {}
        self._deserved: dict[str, _Recent] = {}
        self._partial_since: dict[tuple[str, str], float] = {}
        self._suspicions: deque[tuple[float, Callable[[], str]]] = deque()  # when to look, and what is wrong then
        self._lock = threading.RLock()
        self._stopping = threading.Event()

    @contextmanager
    def observing(self) -> Iterator[None]:
        followed: list[tuple[str, Callable[[list[Json]], None], Callable[[str, Json], None]]] = [
            (QUEUES, self.queues_listed, self.queue_changed),
            (GROUPS, self.groups_listed, self.group_changed),
            (PODS, self.pods_listed, self.pod_changed),
            (EVENTS, self.events_listed, self.event_changed),
        ]
        with ThreadPoolExecutor() as threads:
            work = [
                threads.submit(follow, Api(self._kubeconfig), path, self._stopping, listed, changed)
                for path, listed, changed in followed
            ]
            work.append(threads.submit(self._look_again_and_again))
            try:
                yield
            finally:
                self._stopping.set()
        for each in work:
            each.result()
        self._settle(self._clock() + LAG)

    def node_deleted(self, node: str) -> None:
        """Nobody is charged for pods on a node that does not exist; it may be back before they are gone."""
        with self._lock:
            self._note(f"node {node} is deleted")
            self._orphaned |= {pod.uid for pod in self.state.pods.values() if pod.node == node}

    def evictions(self) -> int:
        return len(self._evicted)

    # Queues

    def queues_listed(self, queues: list[Json]) -> None:
        with self._lock:
            names = {each["metadata"]["name"] for each in queues}
            for name in [name for name in self.state.queues if name not in names]:
                self._remove_queue(name)
            for queue in queues:
                self._set_queue(ObservedQueue.of(queue))

    def queue_changed(self, event: str, queue: Json) -> None:
        with self._lock:
            if event == "DELETED":
                self._remove_queue(queue["metadata"]["name"])
            else:
                self._set_queue(ObservedQueue.of(queue))

    def _set_queue(self, queue: ObservedQueue) -> None:
        if self.state.queues.get(queue.name) != queue:
            self._note(str(queue))
        now = self._clock()
        limit = queue.limit if queue.limit != UNLIMITED else 1 << 60
        self._limits.setdefault(queue.name, _Recent(LATE + LAG, max)).add(now, limit)
        self.state.queues[queue.name] = queue
        self._queues_have_changed()

    def _remove_queue(self, name: str) -> None:
        self._note(f"queue {name} is deleted")
        self.state.queues.pop(name, None)
        self._queues_have_changed()

    def _queues_have_changed(self) -> None:
        self._used = self._in_use()
        for name in self.state.queues:
            self._deserved.setdefault(name, _Recent(LATE + LAG, min)).add(self._clock(), self.state.deserved(name))

    # Groups

    def groups_listed(self, groups: list[Json]) -> None:
        with self._lock:
            self.state.minimums = {_key(group): group["spec"]["minMember"] for group in groups}

    def group_changed(self, event: str, group: Json) -> None:
        with self._lock:
            self.state.minimums.pop(_key(group), None)
            if event != "DELETED":
                self.state.minimums[_key(group)] = group["spec"]["minMember"]

    def _look_again_and_again(self) -> None:
        while not self._stopping.wait(0.2):
            self.look()

    def look(self) -> None:
        """For what only time shows."""
        with self._lock:
            self._look_at_groups()
            self._settle(self._clock())

    def _look_at_groups(self) -> None:
        """How long each group runs in parts."""
        now = self._clock()
        in_parts = {key: (count, minimum) for key, count, minimum in self.state.partial_groups()}
        since = {key: self._partial_since.get(key, now) for key in in_parts}
        self._partial_since = since
        for key, start in since.items():
            self.longest_partial = max(self.longest_partial, now - start)
            if now - start > self._stale:
                count, minimum = in_parts[key]
                self._violated(f"{count} of at least {minimum} pods of {'/'.join(key)} run for {now - start:.0f} s")
                since[key] = now

    # Pods

    def pods_listed(self, pods: list[Json]) -> None:
        with self._lock:
            self.state.pods = {each["metadata"]["uid"]: ObservedPod.of(each) for each in pods if _ours(each)}
            for pod in self.state.pods.values():
                self._seen(pod)
            for each in pods:
                self._count_eviction(each)
            self._look_at_use()

    def pod_changed(self, event: str, pod: Json) -> None:
        if not _ours(pod):
            return
        with self._lock:
            self.counts["pod changes"] += 1
            seen = ObservedPod.of(pod)
            self._seen(seen)
            self._count_eviction(pod)
            if event == "DELETED":
                self.state.pods.pop(seen.uid, None)
            else:
                self.state.pods[seen.uid] = seen
            self._look_at_use()

    def _seen(self, pod: ObservedPod) -> None:
        if self._known.get(pod.uid) != pod:
            self._note(str(pod))
        self._known[pod.uid] = pod

    def _count_eviction(self, pod: Json) -> None:
        conditions = pod.get("status", {}).get("conditions", ())
        if _ours(pod) and any(each.get("reason") == "EvictionByEvictionAPI" for each in conditions):
            self._evicted.add(pod["metadata"]["uid"])

    def _look_at_use(self) -> None:
        """Whoever uses more than before stays within the limit."""
        now = self._clock()
        used = self._in_use()
        for name, amount in used.items():
            if amount > self._used.get(name, 0):
                self.counts["uses compared with limits"] += 1
                if amount > self._limits[name].extreme(now):
                    self._suspect(partial(self._above_limit, name, amount))
        self._used = used
        charged = self.state.used(pod for pod in self.state.pods.values() if pod.active and (pod.node or pod.nominated))
        for name, amount in charged.items():
            self._uses.setdefault(name, _Recent(HELD, max)).add(now, amount)

    def _above_limit(self, name: str, amount: int) -> str:
        limit = self._limits[name].extreme(self._clock())
        return f"queue {name} uses {amount} of a limit of {limit} milli-GPU" if amount > limit else ""

    def _in_use(self) -> dict[str, int]:
        return self.state.used(pod for pod in self.state.running() if pod.uid not in self._orphaned)

    # Evictions, as their events say

    def events_listed(self, events: list[Json]) -> None:
        for event in events:
            self.event_changed("ADDED", event)

    def event_changed(self, kind: str, event: Json) -> None:
        if event.get("reason") != "Evicted" or kind == "DELETED":
            return
        with self._lock:
            pod = self._known.get(event["involvedObject"].get("uid", ""))
            if pod is None or event["metadata"]["uid"] in self._events:
                return
            self._events.add(event["metadata"]["uid"])
            self._note(f"{pod.namespace}/{pod.name} of {pod.queue} is evicted: {event.get('message', '')}")
            self._judge_eviction(pod, event.get("message", ""))

    def _judge_eviction(self, pod: ObservedPod, why: str) -> None:
        verb = why.split(" ", 1)[0]
        self.counts[f"evictions: {verb if verb in ('reclaimed', 'preempted', 'moved') else 'repairs'}"] += 1
        repaired = any(each in why for each in REPAIRS)
        if not pod.preemptible and not repaired:
            self._violated(f"{pod.name}, which is not preemptible, was evicted: {why}")
        if reclaimed := RECLAIMED.match(why):
            self._judge_reclaim(pod, reclaimed, why)
        elif preempted := PREEMPTED.match(why):
            if int(preempted["theirs"]) <= int(preempted["own"]):
                self._violated(f"{pod.name} was evicted: {why}")
        elif verb != "moved" and not repaired:
            self._violated(f"{pod.name} was evicted for an unknown reason: {why}")

    def _judge_reclaim(self, pod: ObservedPod, said: re.Match[str], why: str) -> None:
        queue = said["queue"]
        if float(said["used"]) <= float(said["most"]):
            self._violated(f"{pod.name} was evicted from a queue within its share: {why}")
        if queue not in (path := self.state.path(pod.queue)) and path:
            self._violated(f"{pod.name} of {pod.queue} was evicted because of another queue: {why}")
        if queue in self.state.path(said["taker"]):
            self._violated(f"{pod.name} of {pod.queue} was evicted for its own side: {why}")
        if queue in self._uses and queue in self._deserved:
            used = self._uses[queue].extreme(self._clock())
            self.counts["reclaims compared with quotas"] += 1
            if used <= self._deserved[queue].extreme(self._clock()):
                self._suspect(partial(self._within_quota, queue, used, f"{pod.name} was evicted: {why}"))

    def _within_quota(self, queue: str, used: int, what: str) -> str:
        deserved = self._deserved[queue].extreme(self._clock())
        return f"{what}, though {queue} uses {used} of a quota of {deserved}" if used <= deserved else ""

    def _suspect(self, problem: Callable[[], str]) -> None:
        self._suspicions.append((self._clock() + LAG, problem))

    def _settle(self, now: float) -> None:
        while self._suspicions and self._suspicions[0][0] <= now:
            problem = self._suspicions.popleft()[1]()
            if problem:
                self._violated(problem)

    def _violated(self, text: str) -> None:
        self.violations.append(f"{time.strftime('%H:%M:%S')} {text}")
        self._note(f"VIOLATION {text}")

    def _note(self, text: str) -> None:
        self.history.append(f"{datetime.now(UTC):%H:%M:%S.%f} {text}")


class _Recent:
    """The largest or smallest of the values of the last seconds, that which held before them included."""

    def __init__(self, seconds: float, best: Callable[..., int]) -> None:
        self._seconds, self._best = seconds, best
        self._values: deque[tuple[float, int]] = deque()

    def add(self, now: float, value: int) -> None:
        if not self._values or self._values[-1][1] != value:
            self._values.append((now, value))
        self._prune(now)

    def extreme(self, now: float) -> int:
        self._prune(now)
        return self._best(value for _, value in self._values)

    def _prune(self, now: float) -> None:
        while len(self._values) > 1 and self._values[1][0] < now - self._seconds:
            self._values.popleft()


def _ours(pod: Json) -> bool:
    return bool(pod["metadata"].get("labels", {}).get(STORM) == "yes")


def _key(group: Json) -> tuple[str, str]:
    return group["metadata"]["namespace"], group["metadata"]["name"]
