"""For one class of pods: on each node, whom to take there to make room for one.

On a node victims are taken in their order until the pod fits, which finds the lowest level that suffices; among the
victims of this level the smallest set is searched. Options are kept and worked out again only for nodes that changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import accumulate, combinations
from typing import NamedTuple

from apportion.apis import names
from apportion.apis.identities import NodeName, PodUID
from apportion.apis.request import Request
from apportion.core.evictions import plans, trials
from apportion.core.evictions.plans import Loss, Pods
from apportion.core.evictions.running_group import RunningGroup, RunningPod
from apportion.core.evictions.running_groups import RunningGroups
from apportion.core.evictions.whole_gpu_room import WholeGpuRoom
from apportion.core.filters import Checks
from apportion.core.filters import nodes as node_rules
from apportion.core.fleet import Fleet
from apportion.core.node import NodeState
from apportion.core.placement.node_placement import NodePlacement, placement
from apportion.core.placement.selection import by_node_alone
from apportion.core.policies import Policy

_MOST_SETS = 3000  # that are looked at on a node
_MOST_TRIALS = 150  # of them that are tried out

May = Callable[[Pods], bool]  # these pods, with their whole groups, may be taken together


class Option(NamedTuple):
    """`pods` go, those of their groups on other nodes too; `place` is what the new pod gets on the node."""

    loss: Loss
    node: NodeName
    pods: Pods
    place: NodePlacement


class Chosen:
    """What is decided already for pods of the same group: `gone` are all who go, `placed` the pods on each node."""

    def __init__(self) -> None:
        self.gone: set[PodUID] = set()
        self.pods: list[RunningPod] = []
        self._of_groups: dict[str, set[PodUID]] = {}
        self.placed: dict[NodeName, list[Request]] = {}

    def with_groups(self, pods: Iterable[RunningPod]) -> Pods:
        """All who go if these pods do, of their groups."""
        groups: dict[str, tuple[RunningGroup, set[PodUID]]] = {}
        for pod in pods:
            groups.setdefault(pod.group.key, (pod.group, set()))[1].add(pod.uid)
        found: list[RunningPod] = []
        for key in sorted(groups):
            group, uids = groups[key]
            gone = self._of_groups.get(key)
            found += group.taken(uids | gone if gone else uids)
        return tuple(found)

    def take(self, pod: RunningPod) -> None:
        self.gone.add(pod.uid)
        self.pods.append(pod)
        self._of_groups.setdefault(pod.group.key, set()).add(pod.uid)

    def more(self, whole: Pods) -> Pods:
        """Those of them who do not go already."""
        return tuple(pod for pod in whole if pod.uid not in self.gone) if self.gone else whole


class NodeOptions:
    """`jointly`: whether a pod may go depends on who else goes, of its group or not."""

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy,
        request: Request,
        running: RunningGroups,
        may: May,
        *,
        jointly: bool = False,
    ) -> None:
        self._fleet, self._policy, self._running = fleet, policy.for_request(request), running
        self._request = request
        self.may = may
        self._jointly = jointly
        self.counted = by_node_alone(fleet, request) and not request.slices and request.share is None
        self._chosen = Chosen()
        self._known: dict[NodeName, Option | None] = {}
        self._heap: list[tuple[Loss, NodeName]] = []
        self._seen = -1
        self._skipped = False
        self._facts: dict[NodeName, tuple[object, bool]] = {}

    def beside(self, chosen: Chosen) -> NodeOptions:
        """A copy that takes into account what is chosen already, and can be changed by it."""
        other = copy(self)
        other._chosen = chosen  # noqa: SLF001
        other._known, other._heap = dict(self._known), list(self._heap)  # noqa: SLF001
        return other

    def follow(self) -> None:
        """Take changes of the fleet into account."""
        changed = self._fleet.log.since(self._seen) if self._seen >= 0 else None
        self.refresh(changed if changed is not None else [node.name for node in self._fleet])
        self._seen = self._fleet.log.end

    def refresh(self, nodes: Iterable[NodeName]) -> None:
        for name in sorted(nodes):
            node = self._fleet.nodes.get(name)
            option = self._on_node(node) if node is not None and node.facts is not None else None
            self._known[name] = option
            if option is not None:
                heapq.heappush(self._heap, (option.loss, name))

    def ranked(self, most: int) -> Iterator[Option]:
        """The best ones, best first."""
        shown: list[tuple[Loss, NodeName]] = []
        while len(shown) < most and (option := self.best()) is not None:
            shown.append(heapq.heappop(self._heap))
            yield option
        for entry in shown:
            heapq.heappush(self._heap, entry)

    def best(self) -> Option | None:
        while self._heap:
            loss, name = self._heap[0]
            option = self._known.get(name)
            if option is None or option.loss != loss:
                heapq.heappop(self._heap)
            elif self._holds(option):
                return option
            else:
                heapq.heappop(self._heap)
                self.refresh([name])
        return None

    def _holds(self, option: Option) -> bool:
        """Budgets and what the groups of the victims can spare may have changed since."""
        if not option.pods:
            return True
        whole = self._chosen.with_groups(option.pods)
        return self._allowed(whole) and plans.loss(self._chosen.more(whole)) == option.loss

    def _allowed(self, whole: Pods) -> bool:
        """These may go beside those who go already."""
        if not self.may((*self._chosen.pods, *self._chosen.more(whole)) if self._jointly else whole):
            return False
        budgets = self._running.budgets
        return not budgets.exist or budgets.allow({*self._chosen.gone, *(pod.uid for pod in whole)})

    def _on_node(self, node: NodeState) -> Option | None:
        if not self._takes(node):
            return None
        self._skipped = False
        found = self._by_counting(node) if self.counted else self._by_trying(node)
        if not self._skipped and (found is None or found.loss[1] <= 1):
            return found
        if found is not None:
            found = self._without_needless(node, found)
        return self._smallest(node, list(self._candidates(node)), found)

    def _candidates(self, node: NodeState) -> Iterator[RunningPod]:
        """Who may go there, in their order."""
        for pod in self._running.on_node.get(node.name, ()):
            if pod.uid not in self._chosen.gone and self._allowed(self._chosen.with_groups((pod,))):
                yield pod

    def _by_counting(self, node: NodeState) -> Option | None:
        """The first of the candidates that make room."""
        room = self._room(node)
        place = NodePlacement(node.name, 0)
        if room.fits:
            return Option(plans.loss(()), node.name, (), place)
        taken: list[RunningPod] = []
        out: set[PodUID] = set()
        for pod in self._candidates(node):
            if not self._allowed_with(taken, pod):
                continue
            taken.append(pod)
            whole = self._chosen.with_groups(taken if pod.group.several else (pod,))
            for other in self._chosen.more(whole):
                if other.node == node.name and other.uid not in out:
                    out.add(other.uid)
                    room.take(other.uid)
            if room.fits:
                return self._priced(node, taken, place)
        return None

    def _allowed_with(self, taken: list[RunningPod], pod: RunningPod) -> bool:
        """It may go together with those before it. If not, the order does not tell who goes best."""
        alone = not self._jointly and not pod.group.several and not self._running.budgets.exist
        if not taken or alone:
            return True
        allowed = self._allowed(self._chosen.with_groups((*taken, pod)))
        self._skipped = self._skipped or not allowed
        return allowed

    def _by_trying(self, node: NodeState) -> Option | None:
        place = self._place(node, ())
        if place is not None:
            return Option(plans.loss(()), node.name, (), place)
        taken: list[RunningPod] = []
        lacking = self._lacking(node)
        for pod in self._candidates(node):
            if not self._allowed_with(taken, pod):
                continue
            taken.append(pod)
            for resource, amount in pod.request.resources.items():
                if resource in lacking:
                    lacking[resource] -= amount
            if any(lack > 0 for lack in lacking.values()):
                continue
            option = self._option(node, taken)
            if option is not None:
                return option
        return None

    def _takes(self, node: NodeState) -> bool:
        """The rules about the node itself allow the pod there."""
        facts = node.facts
        known = self._facts.get(node.name)
        if known is None or known[0] is not facts:
            assert facts is not None
            known = self._facts[node.name] = (facts, node_rules.against_facts(facts, self._request) is None)
        return known[1]

    def _without_needless(self, node: NodeState, option: Option) -> Option:
        for pod in sorted(option.pods, key=lambda pod: (pod.group.level, pod.age), reverse=True):
            if len(option.pods) == 1:
                break
            fewer = self._option(node, [other for other in option.pods if other is not pod])
            if fewer is not None:
                option = fewer
        return option

    def _smallest(self, node: NodeState, allowed: Sequence[RunningPod], option: Option | None) -> Option | None:
        """Look through smaller sets of the same level."""
        usable = [pod for pod in allowed if option is None or pod.group.level <= option.loss[0]]
        fewest = self._fewest(node, usable)
        looked = tried = 0
        for size in range(fewest, len(usable) + 1):
            if option is not None and size > len(option.pods):
                break
            for pods in combinations(usable, size):
                looked += 1
                if looked > _MOST_SETS or tried > _MOST_TRIALS:
                    return option
                if option is None or plans.loss(self._chosen.more(self._chosen.with_groups(pods))) < option.loss:
                    tried += 1
                    option = self._option(node, pods) or option
        return option

    def _fewest(self, node: NodeState, usable: Sequence[RunningPod]) -> int:
        """So many pods have to go at least."""
        fewest = 1
        for resource, lack in self._lacking(node).items():
            amounts = sorted((pod.request.resources.get(resource, 0) for pod in usable), reverse=True)
            sums = accumulate(amounts)
            fewest = max(fewest, 1 + sum(1 for given in sums if given < lack))
        return fewest

    def _lacking(self, node: NodeState) -> dict[str, int]:
        """What has to be given back at least. Shares and slices of GPUs are not counted here."""
        room = self._room(node)
        shared = any(gpu.shares for gpu in node.gpus.values())
        return {
            resource: lack
            for resource, lack in room.lacking.items()
            if lack > 0 and not (shared and resource == names.NVIDIA_GPU)
        }

    def _option(self, node: NodeState, pods: Sequence[RunningPod]) -> Option | None:
        whole = self._chosen.with_groups(pods)
        if not self._allowed(whole):
            return None
        place = self._place(node, [pod for pod in self._chosen.more(whole) if pod.node == node.name])
        return self._priced(node, pods, place) if place is not None else None

    def _priced(self, node: NodeState, pods: Sequence[RunningPod], place: NodePlacement) -> Option | None:
        whole = self._chosen.with_groups(pods)
        if not self._allowed(whole):
            return None
        return Option(plans.loss(self._chosen.more(whole)), node.name, tuple(pods), place)

    def _place(self, node: NodeState, without: Sequence[RunningPod]) -> NodePlacement | None:
        if self.counted:
            room = self._room(node)
            for pod in without:
                room.take(pod.uid)
            return NodePlacement(node.name, 0) if room.fits else None
        with trials.trial(self._fleet):
            for pod in without:
                self._fleet.take_away(pod.uid)
            trials.clear(self._fleet, node)
            if Checks(self._fleet, self._request).against(node) is not None:
                return None
            return placement(node, self._request, self._policy)

    def _room(self, node: NodeState) -> WholeGpuRoom:
        placed = self._chosen.placed.get(node.name, ())
        return WholeGpuRoom(self._fleet, node, self._request, self._chosen.gone, placed)
