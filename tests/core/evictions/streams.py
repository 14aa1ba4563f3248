"""Random clusters and streams of groups: slices, static MIG devices, shares, whole GPUs, gangs, elastic groups."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from apportion.apis import names
from apportion.apis.identities import PodUID, QueueName
from apportion.apis.request import Request
from apportion.core.evictions.disruption_budgets import KnownBudgets
from apportion.core.evictions.room import Consolidation
from apportion.core.fleet import Fleet
from apportion.core.groups import Gang, Subgroup
from apportion.core.policies import Policy
from apportion.core.queues.tree import Allowance, Queue, QueueTree
from apportion.lab.scenarios.simulation import Simulation
from tests.builders.accelerators import A100
from tests.builders.fleets import add_node, fleet_of, node_facts
from tests.builders.pods import pod_request

STATIC = f"{names.NVIDIA_MIG_PREFIX}1g.5gb"
PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb")


class Stream:
    """A simulation to which groups come, in which pods end, and whose controllers make evicted pods anew."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fleet = self._fleet()
        consolidation = self.rng.choice([*Consolidation, Consolidation.SLICES])
        self.simulation = Simulation(self.fleet, {}, Policy("first-fit"), consolidation=consolidation)
        self._names = 0
        self._budgets: dict[PodUID, tuple[str, ...]] = {}
        self._allowed = {"default/x": self.rng.randint(0, 2), "default/y": 1} if self.rng.random() < 0.3 else {}

    def arrive(self) -> None:
        rng = self.rng
        self._names += 1
        name = f"g{self._names:03}"
        size = rng.choice([1, 1, 1, 1, 1, 2, 3])
        ask, priority, queue = self._ask(), rng.choice([40, 50, 50, 50, 75, 100, 125]), rng.choice(self.leaves)
        minimum = rng.choice([size, size, rng.randint(1, size)])
        parts = (("head", 1), ("worker", size - 1)) if size > 2 and rng.random() < 0.4 else ()
        owner = None if rng.random() < 0.3 else f"job-{name}"
        pods = [
            self._pod(f"{name}-{index}", name if size > 1 else None, _part(parts, index), owner, ask, priority, queue)
            for index in range(size)
        ]
        subgroups = tuple(Subgroup(part, rng.randint(0, most)) for part, most in parts)
        minimum = max(minimum, sum(each.minimum for each in subgroups))
        self.fleet.set_gang(Gang(pods[0].group_key, minimum, subgroups, created=pods[0].created))
        for pod in pods:
            self.simulation.pending[pod.uid] = pod
            if self._allowed:
                choices = [(), (), ("default/x",), ("default/y",), ("default/x", "default/y")]
                self._budgets[pod.uid] = rng.choice(choices)
        self.fleet.budgets = KnownBudgets(self._allowed, self._budgets)

    def end(self) -> None:
        """All pods of a random group end."""
        if not self.fleet.group_pods:
            return
        key = self.rng.choice(sorted(self.fleet.group_pods))
        for uid in list(self.fleet.group_pods[key]):
            self.fleet.take_away(uid)
        for pod in [pod for pod in self.simulation.pending.values() if pod.group_key == key]:
            del self.simulation.pending[pod.uid]

    def _fleet(self) -> Fleet:
        rng = self.rng
        fleet = fleet_of()
        for number in range(rng.randint(1, 4)):
            kind = rng.choice(["whole", "whole", "mig", "static"])
            if kind == "static":
                add_node(fleet, node_facts(f"n{number}", **{STATIC: rng.randint(1, 7)}))
            else:
                count = rng.randint(1, 2) if kind == "mig" else rng.randint(1, 4)
                cpu = rng.choice([64_000, 6_000])
                add_node(fleet, node_facts(f"n{number}", cpu=cpu), [(A100, kind == "mig")] * count)
        fleet.accounts.set_tree(QueueTree(self._queues()))
        tree = fleet.accounts.tree
        self.leaves = [name for name in tree.queues if tree.problem(name) is None]
        return fleet

    def _queues(self) -> list[Queue]:
        rng = self.rng
        found: list[Queue] = []
        for number in range(rng.randint(1, 3)):
            found += self._below("", f"q{number}", rng.randint(0, 2))
        return found

    def _below(self, parent: str, name: str, depth: int) -> list[Queue]:
        rng = self.rng
        gpu = Allowance(
            rng.choice([-1, 0, 500, 1000, 1000, 2000]), rng.choice([-1, -1, -1, -1, 1000, 3000]), rng.choice([0, 1, 2])
        )
        cpu = Allowance(-1, rng.choice([-1, -1, -1, 8000]))
        own = Queue(QueueName(name), QueueName(parent), rng.choice([100, 100, 101]), name, gpu=gpu, cpu=cpu)
        children = [self._below(name, f"{name}{letter}", depth - 1) for letter in "ab"] if depth else []
        return [own, *(each for child in children for each in child)]

    def _ask(self) -> dict[str, Any]:
        rng = self.rng
        match rng.choice(["gpus", "gpus", "fraction", "memory", "slices", "static", "cpu"]):
            case "gpus":
                return {"gpus": rng.choice([1, 1, 2, 4])}
            case "fraction":
                return {"fraction": f"0.{rng.randint(1, 9)}"}
            case "memory":
                return {"memory": rng.choice([1000, 8000, 20480, 30000])}
            case "slices":
                return {"slices": {rng.choice(PROFILES): rng.choice([1, 1, 2])}}
            case "static":
                return {"limits": {STATIC: str(rng.randint(1, 2))}}
            case _:
                return {"cpu": str(rng.randint(1, 4))}

    def _pod(
        self,
        name: str,
        group: str | None,
        subgroup: str,
        owner: str | None,
        ask: dict[str, Any],
        priority: int,
        queue: QueueName,
    ) -> Request:
        return msgspec.structs.replace(
            pod_request(name, uid=f"uid-{name}", **ask),
            group=group,
            subgroup=subgroup,
            owner=owner,
            priority=priority,
            priority_class="some",
            queue=queue,
            scheduler_name=names.KAI_SCHEDULER,
            created=f"2026-01-01T{self._names:05}",
        )


def _part(parts: tuple[tuple[str, int], ...], index: int) -> str:
    if not parts:
        return ""
    return parts[0][0] if index == 0 else parts[1][0]
