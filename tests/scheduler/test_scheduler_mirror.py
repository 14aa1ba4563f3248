"""The fleet follows the cluster, and assumptions last exactly as long as they should."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apportion.apis import names
from apportion.apis.accelerators import NodeAccelerator
from apportion.apis.claims import AllocationClaim, PodReference, claim_name, new_claim
from apportion.apis.errors import InputError
from apportion.apis.nodes import Node
from apportion.apis.pods import Pod
from apportion.core import cycle
from apportion.core.catalog import Catalog
from apportion.core.changes import Happened
from apportion.core.operations import ObjectRef
from apportion.core.policies import Policy
from apportion.core.statement import Statement
from apportion.scheduler.backlog import Backlog
from apportion.scheduler.mirror import Mirror
from tests.scheduler.ground import A100, pod_body


class World:
    """Informers in miniature: what they would tell the mirror, told by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.problems: list[str] = []
        self.backlog = Backlog(lambda: self.now)
        self.mirror = Mirror(
            Catalog.shipped(),
            self.backlog,
            now=lambda: self.now,
            on_change=lambda: None,
            on_problem=self._problem,
        )

    def _problem(self, pod: Pod, error: InputError) -> None:
        self.problems.append(f"{pod.metadata.name}: {error}")

    def pod(self, name: str, *, before: Pod | None = None, **options: Any) -> Pod:
        body = pod_body(name, **options)
        body["metadata"]["uid"] = f"uid-{name}"
        made = msgspec.convert(body, Pod)
        self.mirror.pod_changed(before, made)
        return made

    def node(self, name: str = "n1", *, agent: bool = True, **allocatable: str) -> None:
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", f"{names.SLICE_PREFIX}1g.5gb": "7", **allocatable}
        labels = {names.MIG_CAPABLE_LABEL: "true"}
        body = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}
        self.mirror.node_changed(None, msgspec.convert(body, Node))
        self.accelerator(name)
        if agent:
            self.agent(name, ready=True)

    def accelerator(self, name: str) -> None:
        model = Catalog.shipped().find(A100)
        assert model is not None
        profiles = [
            {"name": p.name, "size": p.size, "starts": list(p.starts), "limit": p.limit} for p in model.profiles
        ]
        gpu = {"uuid": f"GPU-{name}", "model": A100, "memoryMiB": 40960, "migEnabled": True, "profiles": profiles}
        status = {
            "gpus": [gpu],
            "agent": {"namespace": "das-operator", "name": f"agent-{name}", "uid": "agent-1"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        body = {"metadata": {"name": name, "namespace": "das-operator"}, "status": status}
        self.mirror.accelerator_changed(None, msgspec.convert(body, NodeAccelerator))

    def agent(self, node: str, *, ready: bool, uid: str = "agent-1") -> None:
        body = {
            "metadata": {
                "name": f"agent-{node}",
                "namespace": "das-operator",
                "uid": uid,
                "labels": {names.APP_LABEL: names.AGENT_APP},
            },
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
        }
        self.mirror.pod_changed(None, msgspec.convert(body, Pod))

    def decide(self) -> Statement:
        (entry,) = self.backlog.take(self.mirror.take_changes())
        plan = cycle.decide(self.mirror.fleet, entry.group, Policy.named("fragmentation"))
        assert isinstance(plan, Statement)
        self.mirror.assume(plan)
        self.backlog.start(entry)
        return plan

    def claim_of(self, plan: Statement) -> AllocationClaim:
        (operation,) = plan.claims
        place, request = operation.placement, operation.request
        return new_claim(
            name=operation.name,
            profile=place.profile,
            gpu_uuid=place.gpu,
            start=place.start,
            size=place.size,
            nodename=operation.node,
            pod=PodReference(namespace=request.namespace, name=request.name, uid=request.uid),
            containers=list(operation.containers),
        )

    def overdue(self, seconds: float) -> set[ObjectRef | None]:
        return {operation.confirmed_by for _, operation in self.mirror.overdue(seconds)}

    @property
    def kinds(self) -> list[Happened]:
        return [change.kind for change in self.mirror.take_changes()]


@pytest.fixture
def world() -> World:
    return World()


def test_a_confirmed_plan_stays_and_a_forgotten_one_goes(world: World) -> None:
    world.node()
    pod = world.pod("a", slices={"1g.5gb": 1})
    empty = world.mirror.fleet.record()
    plan = world.decide()
    world.mirror.forget(plan, standing=set())
    assert world.mirror.fleet.record() == empty
    assert set(world.kinds) == {Happened.POD_GONE, Happened.SLICE_FREED}

    world.backlog.retry("uid-a")
    world.now += 1
    plan = world.decide()
    world.mirror.claim_changed(None, world.claim_of(plan))
    world.mirror.written(plan)
    bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1"))
    world.mirror.pod_changed(pod, bound)
    world.now += 1000
    assert not world.overdue(30)
    assert world.mirror.fleet.pod_nodes["uid-a"] == "n1"
    assert len(world.backlog) == 0


def test_claims_that_are_on_the_server_outlive_a_failed_commit(world: World) -> None:
    world.node()
    world.pod("a", slices={"1g.5gb": 1})
    plan = world.decide()
    name = plan.claims[0].name
    world.mirror.forget(plan, standing={plan.claims[0].confirmed_by})
    assert [record.key for record in world.mirror.fleet.slices_of("uid-a")] == [name]
    assert "uid-a" not in world.mirror.fleet.pod_nodes


def test_what_no_informer_shows_is_looked_up_after_a_while(world: World) -> None:
    world.node()
    world.pod("a", slices={"1g.5gb": 1})
    plan = world.decide()
    world.now += 1000
    assert not world.overdue(30), "it is still being written"
    world.mirror.written(plan)
    assert not world.overdue(30)
    world.now += 30
    assert world.overdue(30) == {plan.binds[0].confirmed_by, plan.claims[0].confirmed_by}
    for operation in plan.operations:
        world.mirror.drop(operation)
    assert world.mirror.fleet.slices_of("uid-a") == ()
    assert "uid-a" not in world.mirror.fleet.pod_nodes
    assert not world.overdue(0)


def test_terminating_claims_hold_their_place(world: World) -> None:
    world.node()
    world.pod("a", slices={"1g.5gb": 1})
    claim = world.claim_of(world.decide())
    world.mirror.claim_changed(None, claim)
    meta = msgspec.structs.replace(claim.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    leaving = msgspec.structs.replace(claim, metadata=meta)
    world.mirror.claim_changed(claim, leaving)
    assert len(world.mirror.fleet.slices_of("uid-a")) == 1
    world.mirror.take_changes()
    world.mirror.claim_changed(leaving, None)
    assert world.mirror.fleet.slices_of("uid-a") == ()
    assert world.kinds == [Happened.SLICE_FREED]


def test_a_claim_that_its_agent_moved_frees_its_old_place(world: World) -> None:
    world.node()
    world.pod("a", slices={"1g.5gb": 1})
    claim = world.claim_of(world.decide())
    world.mirror.claim_changed(None, claim)
    world.mirror.take_changes()
    place = msgspec.structs.replace(claim.spec.mig_placement, start=0)
    moved = msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, mig_placement=place))
    world.mirror.claim_changed(claim, moved)
    assert world.mirror.fleet.slices_of("uid-a")[0].placement.start == 0
    assert world.kinds == [Happened.SLICE_FREED]


def test_s09_a_node_takes_slices_only_with_the_very_agent_that_reported(world: World) -> None:
    world.node(agent=False)
    node = world.mirror.fleet.nodes["n1"]
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
    world.mirror.take_changes()
    again = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Running"))
    world.mirror.pod_changed(pod, again)
    world.node()
    assert world.kinds == []


def test_pods_that_are_not_ours_hold_what_they_use_whatever_they_say(world: World) -> None:
    world.node()
    world.pod("odd", limits={"cpu": "3"}, node="n1", annotations={names.POLICY: "luck"})
    assert world.mirror.fleet.nodes["n1"].free("cpu") == 5000
    assert world.problems == []
    world.pod("ours", limits={"cpu": "1"}, annotations={names.POLICY: "luck"})
    assert len(world.problems) == 1
    assert len(world.backlog) == 0


def test_a_pod_that_ended_holds_nothing_but_its_claim(world: World) -> None:
    world.node()
    pod = world.pod("a", slices={"1g.5gb": 1}, limits={"cpu": "2"})
    claim = world.claim_of(world.decide())
    world.mirror.claim_changed(None, claim)
    ended = msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name="n1"),
        status=msgspec.structs.replace(pod.status, phase="Failed"),
    )
    world.mirror.pod_changed(pod, ended)
    assert world.mirror.fleet.nodes["n1"].free("cpu") == 8000
    assert [record.key for record in world.mirror.fleet.slices_of("uid-a")] == [claim_name("uid-a", "main", 0)]


def test_a_node_that_goes_and_comes_back_has_its_gpus_and_slices_again(world: World) -> None:
    world.node()
    world.pod("a", slices={"1g.5gb": 1})
    world.mirror.claim_changed(None, world.claim_of(world.decide()))
    node = Node()
    node.metadata.name = "n1"
    world.mirror.node_changed(node, None)
    assert list(world.mirror.fleet) == []
    world.node()
    assert world.mirror.fleet.nodes["n1"].ready
    assert len(world.mirror.fleet.nodes["n1"].gpus["GPU-n1"].slices) == 1
