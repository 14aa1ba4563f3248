"""Changes that would admit a pod, and how to make them in the core.

A remedy is data; `apply` makes it true on a fleet and gives back the request as it would have to be. Each remedy is
tried out before it is proposed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import msgspec

from apportion.apis import names, profiles
from apportion.apis.identities import DeviceUUID, NodeName, PodUID
from apportion.apis.noderules import NodeRules
from apportion.apis.request import Request
from apportion.core import equivalence
from apportion.core.fleet import Fleet
from apportion.core.fleet_facts import NodeFacts
from apportion.core.groups import Group
from apportion.core.node import MILLI, NodeState
from apportion.core.queues import raises
from apportion.core.refusals import Remedy

SMALLER, MODEL, QUOTA, FREE, RULE, ADD = "profile", "model", "quota", "free", "rule", "add"
_NEW_NODE = "a-new-node"
CONDITION_TAINTS = "node.kubernetes.io/"  # set because of a node's condition, not of its configuration


def apply(fleet: Fleet, request: Request, remedy: Remedy) -> Request:
    """Make the change; the request that should be placed now."""
    match remedy.kind:
        case "profile" | "model":
            return instead(request, remedy)
        case "free":
            for uid in remedy.uids:
                end_pod(fleet, uid)
            return request
        case "rule":
            relaxation = remedy.code.row.relaxation if remedy.code else None
            assert relaxation is not None
            return relaxation.apply(fleet, request, remedy.subject, remedy.node)
        case "add":
            for _ in range(max(1, remedy.count)):
                add_twin(fleet, remedy.node)
            return request
        case _:
            return request


def apply_to_group(fleet: Fleet, group: Group, about: PodUID, remedy: Remedy) -> Group:
    """Make the change for all members that ask for the same as the one that it is about; the group to place now."""
    if remedy.raises:
        fleet.accounts.set_tree(raises.applied(fleet.accounts.tree, remedy.raises))
    if not remedy.changes_pod:
        apply(fleet, group.members[0], remedy)
        return group
    (asked,) = (equivalence.node_class(member) for member in group.members if member.uid == about)
    members = (
        apply(fleet, member, remedy) if equivalence.node_class(member) == asked else member for member in group.members
    )
    return Group(group.key, tuple(members), group.minimum)


def instead(request: Request, remedy: Remedy) -> Request:
    """The request with another profile, share, number of GPUs or product."""
    other = remedy.instead
    match remedy.field:
        case names.GPU_FRACTION:
            assert request.share is not None
            milli = int(Fraction(other) * MILLI)
            return msgspec.structs.replace(request, share=msgspec.structs.replace(request.share, milli=milli))
        case names.GPU_SHARE_MEMORY:
            assert request.share is not None
            return msgspec.structs.replace(request, share=msgspec.structs.replace(request.share, memory_mib=int(other)))
        case names.GPU_FRACTION_DEVICES:
            assert request.share is not None
            return msgspec.structs.replace(request, share=msgspec.structs.replace(request.share, devices=int(other)))
        case names.NVIDIA_GPU:
            resources = {**request.resources, names.NVIDIA_GPU: int(other)}
            return msgspec.structs.replace(request, whole_gpus=int(other), resources=resources)
        case names.GPU_PRODUCT_LABEL:
            return msgspec.structs.replace(request, rules=with_product(request.rules, other))
        case _:
            return with_profile(request, remedy.subject, other)


def with_product(rules: NodeRules, other: str) -> NodeRules:
    """The rules with another GPU product instead of those that they require."""
    label = names.GPU_PRODUCT_LABEL
    selector = tuple((key, other if key == label else value) for key, value in rules.selector)
    required = rules.required
    if required is not None:
        terms = tuple(
            msgspec.structs.replace(
                term,
                match_expressions=tuple(
                    msgspec.structs.replace(each, values=(other,))
                    if (each.key, each.operator) == (label, "In")
                    else each
                    for each in term.match_expressions
                ),
            )
            for term in required.node_selector_terms
        )
        required = msgspec.structs.replace(required, node_selector_terms=terms)
    return msgspec.structs.replace(rules, selector=selector, required=required)


def with_profile(request: Request, asked: str, other: str) -> Request:
    """Every slice of one profile replaced by one of another."""
    slices = tuple(msgspec.structs.replace(w, profile=other) if w.profile == asked else w for w in request.slices)
    count = sum(want.profile == asked for want in request.slices)
    resources = dict(request.resources)
    held = resources.pop(profiles.slice_resource(asked), 0)
    if held:
        resource = profiles.slice_resource(other)
        resources[resource] = resources.get(resource, 0) + held
    if names.GPU_MEMORY in resources:
        # Admission derives it from the profiles, so it follows them.
        change = (profiles.memory_gb(other) - profiles.memory_gb(asked)) * count
        resources[names.GPU_MEMORY] = max(0, resources[names.GPU_MEMORY] + change)
    return msgspec.structs.replace(request, slices=slices, resources=resources)


def end_pod(fleet: Fleet, uid: PodUID) -> None:
    """With the last pod that shares a GPU its reservation pod ends too."""
    shared = [share.gpu for share in fleet.shares_of(uid)]
    fleet.take_away(uid)
    for gpu in shared:
        home = fleet.gpu_nodes.get(gpu)
        ledger = fleet.nodes[home].gpus[gpu] if home is not None else None
        if ledger is not None and ledger.reservation is not None and not ledger.shares:
            fleet.remove_pod(PodUID(ledger.reservation))


def add_twin(fleet: Fleet, like: NodeName) -> NodeName:
    """Add an empty node like an existing one; returns its name."""
    state = fleet.nodes[like]
    assert state.facts is not None
    name = _free_name(fleet.nodes)
    labels = {**state.facts.labels}
    if names.HOSTNAME_LABEL in labels:
        labels[names.HOSTNAME_LABEL] = name
    lasting = tuple(taint for taint in state.facts.taints if not taint.key.startswith(CONDITION_TAINTS))
    fleet.set_node(NodeFacts(name, labels, lasting, unschedulable=False, allocatable=state.facts.allocatable))
    shared = any(gpu.facts.takes_shares for gpu in state.gpus.values())  # otherwise no GPU of such a node may be
    gpus = [
        replace(gpu.facts, uuid=DeviceUUID(f"{name}-{number}"), healthy=True, takes_shares=shared)
        for number, gpu in enumerate(state.gpus.values())
    ]
    fleet.set_gpus(name, gpus, ready=True)
    return name


def _free_name(nodes: Mapping[NodeName, NodeState]) -> NodeName:
    names = (NodeName(f"{_NEW_NODE}-{number}") for number in itertools.count())
    return next(name for name in names if name not in nodes)
