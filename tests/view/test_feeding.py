"""The fleet follows the cluster, and assumptions last exactly as long as they should."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apportion.apis import names
from apportion.apis.custom_resources.accelerators import NodeAccelerator
from apportion.apis.custom_resources.claims import AllocationClaim, claim_name
from apportion.apis.meta import Bare
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.apis.volumes import PersistentVolumeClaim
from apportion.core import group_decision
from apportion.core.groups import Group
from apportion.core.operations import ObjectRef
from apportion.core.policies import Policy
from apportion.core.statement import Statement
from apportion.view.change_log import Change, Happened
from apportion.view.view import View
from tests.builders import accelerators, claims, nodes, pods, volumes
from tests.builders.pods import our_pod, typed


class World:
    """Feeds a view directly with what informers would deliver."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.view = View(now=lambda: self.now)
        self.changes = self.view.changes.reader()

    def pod(self, name: str, *, before: Pod | None = None, **options: Any) -> Pod:
        made = typed(our_pod(name, uid=f"uid-{name}", **options))
        self.view.pods.changed(before, made)
        return made

    def node(self, name: str = "n1", *, agent: bool = True) -> None:
        made = nodes.node(name, resources={"cpu": "8", "memory": "64Gi", f"{names.SLICE_PREFIX}1g.5gb": 7})
        self.view.nodes.changed(None, msgspec.convert(made, Node))
        self.accelerator(name)
        if agent:
            self.agent(name, ready=True)

    def accelerator(self, name: str) -> None:
        made = accelerators.accelerator(name, agent_uid="agent-1")
        self.view.accelerators.changed(None, msgspec.convert(made, NodeAccelerator))

    def agent(self, node: str, *, ready: bool, uid: str = "agent-1") -> None:
        self.view.pods.changed(None, typed(accelerators.agent_pod(node, ready=ready, uid=uid)))

    def decide(self) -> Statement:
        self.changes.take()
        (waiting,) = self.view.waiting
        assert waiting.reading.request is not None
        plan = group_decision.decide(self.view.fleet, Group.of(waiting.reading.request), Policy.named("fragmentation"))
        assert isinstance(plan, Statement)
        self.view.assumptions.decided(plan)
        return plan

    def claim_of(self, plan: Statement) -> AllocationClaim:
        (operation,) = plan.claims
        place, request = operation.placement, operation.request
        return claims.claim(
            pods.pod(request.name, namespace=request.namespace, uid=request.uid),
            node=operation.node,
            gpu=place.gpu,
            profile=place.profile,
            start=place.start,
            size=place.size,
            containers=operation.containers,
        )

    def overdue(self, seconds: float) -> set[ObjectRef | None]:
        return {assumed.operation.confirmed_by for assumed in self.view.assumptions.overdue(seconds)}

    @property
    def kinds(self) -> list[Happened]:
        return [change.kind for change in self.changes.take() if change.kind is not Happened.DISPLAY_CHANGED]


@pytest.fixture
def world() -> World:
    return World()


def test_a_confirmed_plan_stays_and_a_forgotten_one_goes(world: World) -> None:
    world.node()
    pod = world.pod("a", slices={"1g.5gb": 1})
    empty = world.view.fleet.record()
    plan = world.decide()
    world.view.assumptions.undo(plan)
    assert world.view.fleet.record() == empty
    assert set(world.kinds) == {Happened.POD_GONE, Happened.SLICE_FREED}

    world.now += 1
    plan = world.decide()
    world.view.claims.changed(None, world.claim_of(plan))
    world.view.assumptions.written(plan)
    bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1"))
    world.view.pods.changed(pod, bound)
    world.now += 1000
    assert not world.overdue(30)
    assert world.view.fleet.pod_nodes["uid-a"] == "n1"
    assert len(world.view.waiting) == 0


def test_claims_that_are_on_the_server_outlive_a_failed_commit(world: World) -> None:
    world.node()
    world.pod("a", slices={"1g.5gb": 1})
    plan = world.decide()
    name = plan.claims[0].name
    world.view.assumptions.undo(plan, existing={plan.claims[0].confirmed_by})
    assert [record.key for record in world.view.fleet.slices_of("uid-a")] == [name]
    assert "uid-a" not in world.view.fleet.pod_nodes


def test_what_no_informer_shows_is_looked_up_after_a_while(world: World) -> None:
    world.node()
    world.pod("a", slices={"1g.5gb": 1})
    plan = world.decide()
    world.now += 1000
    assert not world.overdue(30), "it is still being written"
    world.view.assumptions.written(plan)
    assert not world.overdue(30)
    world.now += 30
    assert world.overdue(30) == {plan.binds[0].confirmed_by, plan.claims[0].confirmed_by}
    for operation in plan.operations:
        world.view.assumptions.drop(operation)
    assert world.view.fleet.slices_of("uid-a") == ()
    assert "uid-a" not in world.view.fleet.pod_nodes
    assert not world.overdue(0)


def test_terminating_claims_hold_their_place(world: World) -> None:
    world.node()
    world.pod("a", slices={"1g.5gb": 1})
    claim = world.claim_of(world.decide())
    world.view.claims.changed(None, claim)
    meta = msgspec.structs.replace(claim.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    leaving = msgspec.structs.replace(claim, metadata=meta)
    world.view.claims.changed(claim, leaving)
    assert [held.releasing for held in world.view.fleet.slices_of("uid-a")] == [True]
    assert world.kinds[-1:] == [Happened.SLICE_CAME], "whoever has counted on it looks again"
    world.changes.take()
    world.view.claims.changed(leaving, None)
    assert world.view.fleet.slices_of("uid-a") == ()
    assert world.kinds == [Happened.SLICE_FREED]


def test_a_claim_that_its_agent_moved_frees_its_old_place(world: World) -> None:
    world.node()
    world.pod("a", slices={"1g.5gb": 1})
    claim = world.claim_of(world.decide())
    world.view.claims.changed(None, claim)
    world.changes.take()
    place = msgspec.structs.replace(claim.spec.mig_placement, start=0)
    moved = msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, mig_placement=place))
    world.view.claims.changed(claim, moved)
    assert world.view.fleet.slices_of("uid-a")[0].placement.start == 0
    assert world.kinds == [Happened.SLICE_FREED]


def test_s09_a_node_takes_slices_only_with_the_very_agent_that_reported(world: World) -> None:
    world.node(agent=False)
    node = world.view.fleet.nodes["n1"]
    assert not node.ready
    world.agent("n1", ready=True, uid="another")
    assert not node.ready
    world.agent("n1", ready=True)
    assert node.ready
    world.agent("n1", ready=False)
    assert not node.ready


def test_reports_that_change_nothing_are_no_changes(world: World) -> None:
    world.node()
    pod = world.pod("a", limits={"cpu": "1"}, node="n1")
    world.changes.take()
    again = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Running"))
    world.view.pods.changed(pod, again)
    world.node()
    assert world.kinds == []


def test_pods_that_are_not_ours_hold_what_they_use_whatever_they_say(world: World) -> None:
    world.node()
    world.pod("odd", limits={"cpu": "3"}, node="n1", annotations={names.POLICY: "luck"})
    assert world.view.fleet.nodes["n1"].free("cpu") == 5000
    world.pod("ours", limits={"cpu": "1"}, annotations={names.POLICY: "luck"})
    (waiting,) = world.view.waiting
    assert "luck" in str(waiting.reading.problem)


def test_a_pod_that_ended_holds_nothing_but_its_claim(world: World) -> None:
    world.node()
    pod = world.pod("a", slices={"1g.5gb": 1}, limits={"cpu": "2"})
    claim = world.claim_of(world.decide())
    world.view.claims.changed(None, claim)
    ended = msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name="n1"),
        status=msgspec.structs.replace(pod.status, phase="Failed"),
    )
    world.view.pods.changed(pod, ended)
    assert world.view.fleet.nodes["n1"].free("cpu") == 8000
    assert [record.key for record in world.view.fleet.slices_of("uid-a")] == [claim_name("uid-a", "main", 0)]


def test_a_node_that_goes_and_comes_back_has_its_gpus_and_slices_again(world: World) -> None:
    world.node()
    world.pod("a", slices={"1g.5gb": 1})
    world.view.claims.changed(None, world.claim_of(world.decide()))
    node = Node()
    node.metadata.name = "n1"
    world.view.nodes.changed(node, None)
    assert list(world.view.fleet) == []
    world.node()
    assert world.view.fleet.nodes["n1"].ready
    assert len(world.view.fleet.nodes["n1"].gpus["GPU-n1"].slices) == 1


def test_x04_a_gpu_that_one_pod_leaves_stands_in_for_another_that_had_none(world: World) -> None:
    world.node()
    gpu = accelerators.gpu("GPU-whole", mig=False)
    report = accelerators.accelerator("n1", [gpu], agent_uid="agent-1")
    world.view.accelerators.changed(None, msgspec.convert(report, NodeAccelerator))
    first = world.pod("first", gpus=1, node="n1")
    world.pod("second", gpus=1, node="n1")
    node = world.view.fleet.nodes["n1"]
    assert (node.devices_of("uid-first"), node.devices_of("uid-second")) == (("GPU-whole",), ())
    world.view.pods.changed(first, None)
    assert node.devices_of("uid-second") == ("GPU-whole",)


def test_a_claim_that_was_made_for_a_pod_is_a_change_of_that_pod(world: World) -> None:
    assert world.view.volumes is not None
    body = volumes.volume_claim("job-0-scratch", "local")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "job-0", "uid": "uid-job-0", "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    world.changes.take()
    world.view.volumes.volume_claim_changed(None, msgspec.convert(body, PersistentVolumeClaim))
    world.view.volumes.volume_claim_changed(
        None, msgspec.convert(volumes.volume_claim("b", "local"), PersistentVolumeClaim)
    )
    assert world.changes.take() == [
        Change(Happened.STORAGE_CHANGED, pod="uid-job-0"),
        Change(Happened.STORAGE_CHANGED),
    ]


def test_other_labels_of_a_namespace_are_a_change(world: World) -> None:
    def labelled(**labels: str) -> Bare:
        return msgspec.convert({"metadata": {"name": "team", "labels": labels}}, Bare)

    world.changes.take()
    world.view.namespaces.changed(None, labelled(a="1"))
    world.view.namespaces.changed(labelled(a="1"), labelled(a="2"))
    assert [change.kind for change in world.changes.take()] == [Happened.NAMESPACE_CHANGED] * 2
    world.view.namespaces.changed(labelled(a="2"), labelled(a="2"))
    assert world.changes.take() == []
    world.view.namespaces.changed(labelled(a="2"), None)
    assert [change.kind for change in world.changes.take()] == [Happened.NAMESPACE_CHANGED]


def test_s09_a_pod_has_the_very_gpu_that_its_agent_reports(world: World) -> None:
    world.node()
    world.pod("guessed", gpus=1, node="n1")
    world.pod("known", gpus=1, node="n1")
    holders = [{"podUID": "uid-known", "kind": "whole"}]
    gpus = [accelerators.gpu("GPU-0", mig=False, holders=holders), accelerators.gpu("GPU-1", mig=False)]
    report = accelerators.accelerator("n1", gpus, agent_uid="agent-1")
    world.view.accelerators.changed(None, msgspec.convert(report, NodeAccelerator))
    node = world.view.fleet.nodes["n1"]
    assert (node.devices_of("uid-known"), node.devices_of("uid-guessed")) == (("GPU-0",), ("GPU-1",))
