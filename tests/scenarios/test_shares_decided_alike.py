"""`lab scenario` decides about shares as the scheduler does: the same node and GPUs, the same refusals and messages.

The scheduler's side is a view that is fed with Kubernetes objects in a random order and decides pod by pod. Each
decision is written as objects, as the scheduler and the binder write them, and comes back through the informers. Now
and then another leader takes over, who reads everything afresh. Cheapest changes are not compared: agents and
reservation pods, which scenarios do not have, run on the nodes too.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apportion.apis.meta import to_wire
from apportion.apis.request import POLICIES, Request
from apportion.apis.shared_gpus import SharedGpu
from apportion.cluster.client import Client
from apportion.core import group_decision, group_turns
from apportion.core.explanations import messages
from apportion.core.groups import Group
from apportion.core.operations import BindShare
from apportion.core.policies import Policy
from apportion.core.queues.entitlements import Entitlements
from apportion.core.queues.turns import Turn
from apportion.core.refusals import Refusal
from apportion.core.statement import Statement
from apportion.lab.scenarios import running
from apportion.scheduler.sharing.bind_requests import BindRequestWriter
from apportion.view import why
from apportion.view.view import View
from tests.builders.accelerators import CATALOG
from tests.scenarios import random_shares
from tests.scenarios.random_shares import State
from tests.view.objects import BIND_REQUESTS, Follower
from tests.view.test_one_answer import counted

Json = dict[str, Any]

FULL = os.environ.get("APPORTION_SOAK") == "1"
EXAMPLES = 3000 if FULL else 60
WRITER = BindRequestWriter(cast("Client", None), lambda _: None)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(state=random_shares.states(POLICIES), seed=st.integers(0, 2**32))
def test_g04_x04_a_scenario_decides_about_shares_as_the_scheduler_does(state: State, seed: int, tmp_path: Path) -> None:
    expected = Decisions(state, random.Random(seed)).expectations()
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(random_shares.scenario(state, expected)))
    (result,) = running.run_files([str(path)])
    assert result.ok, result.problems


class Decisions:
    """What the scheduler decides, and what a scenario of the same state must come to."""

    def __init__(self, state: State, dice: random.Random) -> None:
        self._state, self._dice = state, dice
        self._cluster = random_shares.objects(state)
        self._policy = Policy(state.policy)
        self._follower = self._leader()
        self._refused: dict[str, Request] = {}

    def expectations(self) -> Json:
        while (turn := self._next()) is not None:
            (request,) = turn.group.members
            outcome = self._decided(turn)
            if isinstance(outcome, Refusal):
                self._refused[request.name] = request
            else:
                self._write(outcome)
            if self._dice.random() < 0.15:
                self._change_leader()
        placed = [each.name for each in self._state.waiting if each.name not in self._refused]
        refusals = {name: self._explained(request) for name, request in self._refused.items()}
        return {
            "running": placed,
            "pending": list(refusals),
            "where": {name: self._node(name) for name in placed},
            "device": {name: self._devices(name) for name in placed if self._known_devices(name)},
            "reason": {name: str(refusal.code) for name, refusal in refusals.items()},
            "message": {name: messages.of(replace(refusal, remedy=None)) for name, refusal in refusals.items()},
            "evictions": 0,
        }

    @property
    def _view(self) -> View:
        return self._follower.view

    def _leader(self) -> Follower:
        made = Follower(self._cluster, View(CATALOG), self._dice)
        made.catch_up()
        return made

    def _change_leader(self) -> None:
        before = counted(self._view.fleet)
        self._cluster.followers.clear()
        self._follower = self._leader()
        assert counted(self._view.fleet) == before

    def _next(self) -> Turn[Group] | None:
        """Of all pods that are neither placed nor refused."""
        fleet = self._view.fleet
        turns = Entitlements(fleet).turns(())
        for waiting in self._view.waiting:
            request = waiting.reading.request
            assert request is not None
            if request.uid not in fleet.pod_nodes and request.name not in self._refused:
                turn = group_turns.next_turn(fleet, [request])
                assert isinstance(turn, Turn)
                turns.add(turn)
        return turns.next()

    def _decided(self, turn: Turn[Group]) -> Statement | Refusal:
        """Taken back: what is written counts."""
        fleet = self._view.fleet
        mark = fleet.checkpoint()
        outcome = group_turns.stopped(fleet, turn) or group_decision.decide(
            fleet, turn.group, self._policy, explained=False
        )
        fleet.rollback(mark)
        return outcome

    def _write(self, statement: Statement) -> None:
        (operation,) = statement.binds
        name, node = operation.request.name, operation.node
        if isinstance(operation, BindShare):
            request = WRITER._request(operation)
            self._cluster.put(BIND_REQUESTS, {**to_wire(request), "status": {}})
            self._follower.catch_up()
            if self._dice.random() < 0.6:
                self._bind(operation)
        else:
            random_shares.bind(self._cluster, name, node)
            self._follower.catch_up()
            random_shares.report_holder(self._cluster, self._state.host(node), name, self._devices(name))
        self._follower.catch_up()

    def _bind(self, operation: BindShare) -> None:
        """As the binder does, on the GPUs that were planned."""
        host = self._state.host(operation.node)
        for (device, _), group in zip(operation.shares, operation.groups, strict=True):
            random_shares.reserve(self._cluster, host, group, device)
        given = tuple(
            SharedGpu(group, device, mib, random_shares.uuid_of(host, device))
            for (device, mib), group in zip(operation.shares, operation.groups, strict=True)
        )
        random_shares.bind(self._cluster, operation.request.name, operation.node, given)

    def _node(self, name: str) -> str:
        return str(self._view.fleet.pod_nodes[f"uid-{name}"])

    def _known_devices(self, name: str) -> bool:
        """Nobody says which GPU a pod with a whole one has on a node without an agent."""
        (waits,) = [each for each in self._state.waiting if each.name == name]
        return not waits.asked.gpus or self._state.host(self._node(name)).agent

    def _devices(self, name: str) -> list[int]:
        """By their number on the node."""
        fleet, uid = self._view.fleet, f"uid-{name}"
        node = fleet.nodes[fleet.pod_nodes[uid]]
        held = [share.gpu for share in fleet.shares_of(uid)] if fleet.holds(uid) else []
        return sorted(list(node.gpus).index(gpu) for gpu in (*held, *node.devices_of(uid)))

    def _explained(self, request: Request) -> Refusal:
        """When all is decided; `why` gives the same reason."""
        refusal = group_decision.decide(self._view.fleet, Group.of(request), self._policy)
        assert isinstance(refusal, Refusal)
        pod = self._view.pods.get(request.uid)
        assert pod is not None
        told = why.answer(self._view, pod, self._policy).refusal
        assert told is not None
        assert told.code == refusal.code
        return refusal
