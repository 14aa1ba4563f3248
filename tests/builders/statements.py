"""Random fleets and statements for property tests."""

from __future__ import annotations

import random

from apportion.apis import names
from apportion.apis.errors import LedgerError
from apportion.apis.placements import SlicePlacement
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import Reservation
from apportion.core.groups import Group
from apportion.core.operations import Bind, BindShare, BindVolume, ClaimSlice, Evict, Operation, Reserve, Unreserve
from apportion.core.statement import Statement
from apportion.core.volumes import Storage, StorageClassFacts, VolumeClaimFacts, VolumeFacts
from tests.builders.accelerators import A100, T4
from tests.builders.fleets import fleet_of, node_facts
from tests.builders.pods import pod_request

NODES = 3
LOCAL = "local"


def crowd(dice: random.Random) -> Fleet:
    """A few nodes with GPUs of both kinds, pods, reservations and volumes, some of them impossible."""
    fleet = fleet_of(
        *((node_facts(f"node-{n}"), [(A100, True)] + [(T4, False)] * dice.randint(0, 3)) for n in range(NODES))
    )
    fleet.storage = Storage(classes={LOCAL: StorageClassFacts(waits_for_pod=True)})
    for number in range(6):
        fleet.storage.volume_claims[f"default/data-{number}"] = VolumeClaimFacts(storage_class=LOCAL)
        fleet.storage.volumes[f"pv-{number}"] = VolumeFacts(storage_class=LOCAL)
    for number in range(dice.randint(0, 8)):
        wants = dice.choice(({"gpus": 1}, {"gpus": 2}, {"cpu": "1"}))
        fleet.add_pod(pod_request(f"old-{number}", **wants), f"node-{dice.randrange(NODES)}")
    for number in range(dice.randint(0, 2)):
        _reserve_gpu(dice, fleet, number)
    for number in range(dice.randint(0, 3)):
        fleet.reserve(reservation(dice, f"old-room-{number}", fleet))
    return fleet


def _reserve_gpu(dice: random.Random, fleet: Fleet, number: int) -> None:
    """A reservation pod that says which GPU it has, or does not."""
    where = f"node-{dice.randrange(NODES)}"
    labels = {names.GPU_GROUP_LABEL: f"group of {where}-gpu1"}
    held = pod_request(f"reservation-{number}", namespace=fleet.reservation_namespace, gpus=1, labels=labels)
    fleet.add_pod(held, where)
    if dice.random() < 0.6:
        fleet.set_devices(where, {held.uid: (f"{where}-gpu{dice.randint(1, 3)}",)})


def reservation(dice: random.Random, key: str, fleet: Fleet) -> Reservation:
    where = f"node-{dice.randrange(NODES)}"
    resources = {"cpu": dice.choice((500, 1000))}
    if dice.random() < 0.6:
        resources[names.NVIDIA_GPU] = dice.randint(1, 2)
    there = [uid for uid, home in fleet.pod_nodes.items() if home == where]
    after = tuple(dice.sample(there, min(len(there), dice.randint(0, 2))))
    return Reservation(key, where, resources, tuple(_places(dice, where)), owner=key, after=after)


def _places(dice: random.Random, where: str) -> list[SlicePlacement]:
    return [SlicePlacement(f"{where}-gpu0", "1g.5gb", dice.randrange(7), 1) for _ in range(dice.randint(0, 2))]


def operation(dice: random.Random, fleet: Fleet, number: int) -> Operation:  # noqa: PLR0911
    """Any operation; some cannot be applied."""
    where, name = f"node-{dice.randrange(NODES)}", f"new-{dice.randrange(10)}"
    match dice.randrange(7):
        case 0:
            request = pod_request(name, slices={"1g.5gb": 1})
            placement = SlicePlacement(f"{where}-gpu0", dice.choice(("1g.5gb", "3g.20gb")), dice.randrange(8), 1)
            return ClaimSlice(f"claim-{dice.randrange(8)}", request, where, placement, ("main",))
        case 1:
            volume = dice.choice(("", f"pv-{dice.randrange(6)}"))
            return BindVolume(pod_request(name), where, f"data-{dice.randrange(6)}", volume=volume)
        case 2 | 3:
            request = pod_request(name, **dice.choice(({"gpus": 1}, {"gpus": 3}, {"cpu": "2"})))
            return Bind(request, where, dice.choice(((), (f"{where}-gpu1",))))
        case 4:
            shares = tuple((f"{where}-gpu{n}", 1000 * n) for n in range(1, dice.randint(2, 3)))
            return BindShare(
                pod_request(name, fraction="0.5", devices=len(shares)),
                where,
                shares,
                tuple(f"group of {gpu}" for gpu, _ in shares),
            )
        case 5:
            victims = [uid for home in fleet for uid in home.pods]
            if victims and dice.random() < 0.8:
                uid = dice.choice(sorted(victims))
                home = fleet.pod_nodes[uid]
                return Evict(fleet.nodes[home].pods[uid], home)
            return Evict(pod_request("nobody"), where)
        case _:
            if fleet.reservations and dice.random() < 0.5:
                return Unreserve(fleet.reservations[dice.choice(sorted(fleet.reservations))])
            return Reserve(pod_request(name), reservation(dice, f"room-{number}", fleet))


def applied(dice: random.Random, fleet: Fleet, count: int) -> list[Statement]:
    """Statements of one to three operations that could be applied; those that could not left no trace."""
    statements = []
    for number in range(count):
        parts = tuple(operation(dice, fleet, 10 * number + part) for part in range(dice.randint(1, 3)))
        statement = Statement(Group.of(pod_request(f"group-{number}")), parts)
        before = fleet.record()
        try:
            statement.apply(fleet)
        except LedgerError:
            assert fleet.record() == before, "all or nothing"
        else:
            statements.append(statement)
    return statements
