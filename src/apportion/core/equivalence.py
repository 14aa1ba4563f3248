"""Which requests are equivalent: one decision, one row of prices and one explanation serves a whole class.

The identity of a pod does not count: uid, name, owner, age, priority, and labels such as the index in a Job. A label
counts only if a rule about pods selects by its key: a rule of the pod itself, or the anti-affinity of an existing pod;
then the namespace counts too. Claims of ephemeral volumes count by what they ask for, not by their names, until they
have a volume.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from apportion.apis.noderules import NodeRules
from apportion.apis.request import Request
from apportion.core.filters import storage
from apportion.core.fleet import Fleet
from apportion.core.groups import Group, successor_key

_NO_RULES = NodeRules()


def group_class(fleet: Fleet, group: Group) -> Hashable:
    """Groups of one class are decided alike on this fleet, unless one of them is `alone`."""
    return tuple(request_class(fleet, member) for member in group.members)


def alone(fleet: Fleet, group: Group) -> bool:
    """The group is like no other, because something is kept for it: its pods hold slices from an earlier attempt, or
    capacity is reserved for it or for successors that they can be; or because a pod of it could not be bound to some
    nodes. What is kept for others counts the same for everybody."""
    if any(fleet.holds(uid) or uid in fleet.failed_nodes for uid in group.uids):
        return True
    return bool(fleet.reservations) and (
        fleet.reserves_for(group.key) or any(fleet.reserves_for(successor_key(member)) for member in group.members)
    )


def request_class(fleet: Fleet, request: Request) -> Hashable:
    """Requests of one class are decided alike on this fleet, wherever the other pods are."""
    own = (node_class(request), request.policy, request.gates)
    rules = request.rules
    if not (fleet.apart or _looks_at_pods(rules) or request.has_volume_claims):
        return own
    keys = fleet.apart_labels | _label_keys(rules)
    labels = tuple(sorted((key, value) for key, value in request.labels.items() if key in keys))
    return (*own, request.namespace, labels, storage.own_claims(fleet, request))


def node_class(request: Request) -> Hashable:
    """Requests of one class get the same answer and price from a node, as far as only that node matters."""
    share, rules = request.share, request.rules
    return (
        frozenset(request.resources.items()),
        request.whole_gpus,
        share and (share.milli, share.memory_mib, share.devices),
        tuple(want.profile for want in request.slices),
        request.node_name,
        b"" if rules == _NO_RULES else msgspec.json.encode(rules),
    )


def _looks_at_pods(rules: NodeRules) -> bool:
    return bool(rules.about_pods or rules.preferred_affinity or rules.preferred_anti_affinity)


def _label_keys(rules: NodeRules) -> frozenset[str]:
    """The pod's own labels that its rules select by: it counts for its own affinity and spread constraints."""
    selectors = [term.label_selector for term in (*rules.affinity, *rules.anti_affinity)]
    selectors += [constraint.label_selector for constraint in rules.spread]
    return frozenset(key for selector in selectors if selector is not None for key in selector.keys)
