"""Random small clusters in wire form: nodes, pods that run on them, and pods that look for a node.

The choices are few on purpose (two or three values per label, small nodes), so that rules meet: a selector that
matches nothing in a thousand worlds tests nothing. Every rule of a node filter that issue and documents name has
its own small function here; `world(seed)` is the same for ever.
"""

from __future__ import annotations

import random
from typing import Any

from tests.differential import volumes as storage

JSON = dict[str, Any]

NAMESPACES = {
    "red": {"team": "a", "kubernetes.io/metadata.name": "red"},
    "blue": {"team": "b", "kubernetes.io/metadata.name": "blue"},
}
SCHEDULER = "recorded-scheduler"
EXTENDED = "example.com/gadget"
ZONE, HOST = storage.ZONE, storage.HOST

_APPS = ("web", "db", "job")
_DISKS = ("ssd", "hdd")
_TAINT_KEYS = ("dedicated", "flaky")
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def world(seed: int, *, asking: int = 10) -> JSON:
    dice = random.Random(seed)
    nodes = [_node(dice, number) for number in range(dice.randint(3, 10))]
    running = [_running(dice, number, nodes) for number in range(dice.randint(0, 24))]
    _part_ports(running)
    claims, volumes = storage.storage(dice, sorted(NAMESPACES))
    return {
        "seed": seed,
        "claims": claims,
        "volumes": volumes,
        "nodes": nodes,
        "running": running,
        "asking": [_asking(dice, number) for number in range(asking)],
    }


def _node(dice: random.Random, number: int) -> JSON:
    name = f"node-{number}"
    labels = {HOST: name}
    _maybe(dice, 0.93, lambda: labels.update({ZONE: dice.choice("abc")}))
    _maybe(dice, 0.7, lambda: labels.update({"disk": dice.choice(_DISKS)}))
    _maybe(dice, 0.5, lambda: labels.update({"rank": str(dice.randint(0, 4))}))
    size = {
        "cpu": dice.choice(("1", "2", "1500m", "4")),
        "memory": dice.choice(("2Gi", "4Gi", "3000M", "8Gi")),
        "ephemeral-storage": dice.choice(("1Gi", "10Gi")),
        "pods": dice.choice(("3", "6", "110")),
    }
    _maybe(dice, 0.7, lambda: size.update({EXTENDED: str(dice.randint(1, 4))}))
    spec: JSON = {}
    _maybe(dice, 0.18, lambda: spec.update(taints=[_taint(dice, key) for key in _some(dice, _TAINT_KEYS, 1)]))
    _maybe(dice, 0.05, lambda: spec.update(unschedulable=True))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"capacity": size, "allocatable": size},
    }


def _taint(dice: random.Random, key: str) -> JSON:
    return {"key": key, "value": dice.choice(("yes", "no", "")), "effect": dice.choice(_EFFECTS)}


def _running(dice: random.Random, number: int, nodes: list[JSON]) -> JSON:
    pod = _pod(dice, f"running-{number}")
    pod["spec"]["nodeName"] = dice.choice(nodes)["metadata"]["name"]
    # Anti-affinity of those that run binds newcomers; the rest of their rules no longer matters.
    _maybe(dice, 0.2, lambda: pod["spec"].update(affinity={"podAntiAffinity": _pod_terms(dice)}))
    _maybe(dice, 0.1, lambda: pod["spec"].update(volumes=storage.mounts(dice)))
    pod["state"] = dice.choices(("Running", "Succeeded", "Failed", "Terminating"), (85, 5, 5, 5))[0]
    return pod


def _part_ports(running: list[JSON]) -> None:
    """No two pods of a node hold one port: kube-scheduler would forget both when one of them ends."""
    taken: set[tuple[str, str, int]] = set()
    for pod in running:
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
            for port in container.pop("ports", ()):
                number = port.get("hostPort", port["containerPort"])
                key = (pod["spec"]["nodeName"], port.get("protocol", "TCP"), number)
                if key not in taken:
                    taken.add(key)
                    container["ports"] = [port]


def _asking(dice: random.Random, number: int) -> JSON:
    pod = _pod(dice, f"asking-{number}")
    spec = pod["spec"]
    spec["schedulerName"] = SCHEDULER
    affinity: JSON = {}
    rules: dict[str, Any] = {
        "selector": lambda: spec.update(nodeSelector=_node_selector(dice)),
        "tolerations": lambda: spec.update(tolerations=[_toleration(dice) for _ in range(dice.randint(1, 3))]),
        "node affinity": lambda: affinity.update(nodeAffinity=_node_affinity(dice)),
        "near pods": lambda: affinity.update(podAffinity=_pod_terms(dice)),
        "away from pods": lambda: affinity.update(podAntiAffinity=_pod_terms(dice)),
        "volumes": lambda: spec.update(volumes=storage.mounts(dice)),
        "spread": lambda: spec.update(topologySpreadConstraints=_spread(dice)),
    }
    # Rules about other pods come last in the chain of filters, so they need more tries to be seen at work.
    weights = {"near pods": 2, "away from pods": 2, "spread": 4, "volumes": 2}
    drawn = [rule for rule in sorted(rules) for _ in range(weights.get(rule, 1))]
    for rule in sorted(set(dice.sample(drawn, dice.choices((0, 1, 2, 3), (1, 5, 3, 1))[0]))):
        rules[rule]()
    if affinity:
        spec["affinity"] = affinity
    return pod


def _pod(dice: random.Random, name: str) -> JSON:
    labels: dict[str, str] = {}
    _maybe(dice, 0.95, lambda: labels.update(app=dice.choice(_APPS)))
    _maybe(dice, 0.5, lambda: labels.update(version=dice.choice("12")))
    containers = [_container(dice, f"c{number}") for number in range(dice.randint(1, 2))]
    spec: JSON = {"containers": containers, "terminationGracePeriodSeconds": 3600}
    _maybe(dice, 0.25, lambda: spec.update(initContainers=_init_containers(dice)))
    _maybe(dice, 0.15, lambda: spec.update(runtimeClassName="heavy"))
    if dice.random() < 0.08:
        # On the node's own network every container port is a host port.
        spec["hostNetwork"] = True
        containers[0]["ports"] = [{"containerPort": dice.choice((80, 81))}]
    elif dice.random() < 0.3:
        dice.choice(containers + spec.get("initContainers", []))["ports"] = [_host_port(dice)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": dice.choice(sorted(NAMESPACES)), "labels": labels},
        "spec": spec,
    }


def _init_containers(dice: random.Random) -> list[JSON]:
    containers = [_container(dice, f"i{number}") for number in range(dice.randint(1, 2))]
    for container in containers:
        if dice.random() < 0.5:
            container["restartPolicy"] = "Always"
    return containers


def _container(dice: random.Random, name: str) -> JSON:
    container: JSON = {"name": name, "image": "workload:1"}
    requests: dict[str, str] = {}
    _maybe(dice, 0.6, lambda: requests.update(cpu=dice.choice(("1m", "100m", "500m", "0.25", "1"))))
    _maybe(dice, 0.5, lambda: requests.update(memory=dice.choice(("64Mi", "256M", "500Mi", "1e9"))))
    _maybe(dice, 0.1, lambda: requests.update({"ephemeral-storage": dice.choice(("100Mi", "2Gi"))}))
    limits: dict[str, str] = {}
    _maybe(dice, 0.1, lambda: limits.update({EXTENDED: str(dice.randint(1, 2))}))
    container["resources"] = {"requests": requests | limits, "limits": limits}
    return container


def _host_port(dice: random.Random) -> JSON:
    port: JSON = {"containerPort": 80, "hostPort": dice.choice((80, 81))}
    _maybe(dice, 0.4, lambda: port.update(hostIP=dice.choice(("10.0.0.1", "10.0.0.2", "0.0.0.0"))))
    _maybe(dice, 0.3, lambda: port.update(protocol="UDP"))
    return port


def _node_selector(dice: random.Random) -> dict[str, str]:
    wanted = {"disk": dice.choice(_DISKS), ZONE: dice.choice("abc")}
    return {key: wanted[key] for key in dice.choice((["disk"], [ZONE], ["disk", ZONE]))}


def _toleration(dice: random.Random) -> JSON:
    toleration: JSON = {"operator": dice.choice(("Exists", "Equal"))}
    if dice.random() < 0.85:
        toleration["key"] = dice.choice((*_TAINT_KEYS, "node.kubernetes.io/unschedulable"))
    else:
        toleration["operator"] = "Exists"
    if toleration["operator"] == "Equal":
        toleration["value"] = dice.choice(("yes", "no", ""))
    _maybe(dice, 0.6, lambda: toleration.update(effect=dice.choice(_EFFECTS)))
    if toleration.get("effect") == "NoExecute" and dice.random() < 0.5:
        toleration["tolerationSeconds"] = 60
    return toleration


def _node_affinity(dice: random.Random) -> JSON:
    terms = [_node_term(dice) for _ in range(dice.randint(1, 2))]
    rule: JSON = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    _maybe(
        dice,
        0.2,
        lambda: rule.update(
            preferredDuringSchedulingIgnoredDuringExecution=[{"weight": 1, "preference": _node_term(dice)}]
        ),
    )
    return rule


def _node_term(dice: random.Random) -> JSON:
    if dice.random() < 0.15:
        names = [f"node-{dice.randint(0, 7)}"]
        return {"matchFields": [{"key": "metadata.name", "operator": dice.choice(("In", "NotIn")), "values": names}]}
    return {"matchExpressions": [_node_requirement(dice) for _ in range(dice.randint(1, 2))]}


def _node_requirement(dice: random.Random) -> JSON:
    operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in {"Gt", "Lt"}:
        return {"key": dice.choice(("rank", "disk")), "operator": operator, "values": [str(dice.randint(0, 4))]}
    key = dice.choice(("disk", ZONE, "rank"))
    if operator in {"Exists", "DoesNotExist"}:
        return {"key": key, "operator": operator}
    values = {"disk": _DISKS, ZONE: tuple("abc"), "rank": tuple("01234")}[key]
    return {"key": key, "operator": operator, "values": list(_some(dice, values, 1))}


def _pod_terms(dice: random.Random) -> JSON:
    terms = [_pod_term(dice) for _ in range(dice.choices((1, 2), (3, 1))[0])]
    rule: JSON = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    _maybe(
        dice,
        0.2,
        lambda: rule.update(
            preferredDuringSchedulingIgnoredDuringExecution=[{"weight": 5, "podAffinityTerm": _pod_term(dice)}]
        ),
    )
    return rule


def _pod_term(dice: random.Random) -> JSON:
    term: JSON = {"topologyKey": dice.choice((ZONE, ZONE, HOST, "disk")), "labelSelector": _selector(dice)}
    _maybe(dice, 0.2, lambda: term.update(namespaces=[dice.choice(sorted(NAMESPACES))]))
    if dice.random() < 0.25:
        term["namespaceSelector"] = dice.choice(({}, {"matchLabels": {"team": "a"}}, {"matchLabels": {"team": "b"}}))
    if dice.random() < 0.15:
        term[dice.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
    return term


def _selector(dice: random.Random) -> JSON:
    if dice.random() < 0.6:
        return {"matchLabels": {"app": dice.choice(_APPS)}}
    operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    requirement: JSON = {"key": "app", "operator": operator}
    if operator in {"In", "NotIn"}:
        requirement["values"] = list(_some(dice, _APPS, 1))
    return {"matchExpressions": [requirement]}


def _spread(dice: random.Random) -> list[JSON]:
    keys = _some(dice, (ZONE, HOST, "disk"), 1)
    return [_constraint(dice, key) for key in keys[:2]]


def _constraint(dice: random.Random, key: str) -> JSON:
    firm = dice.random() < 0.85
    constraint: JSON = {
        "topologyKey": key,
        "maxSkew": dice.choice((1, 1, 2)),
        "whenUnsatisfiable": "DoNotSchedule" if firm else "ScheduleAnyway",
        "labelSelector": _selector(dice),
    }
    if firm:
        _maybe(dice, 0.25, lambda: constraint.update(minDomains=dice.randint(1, 4)))
    _maybe(dice, 0.3, lambda: constraint.update(nodeAffinityPolicy=dice.choice(("Honor", "Ignore"))))
    _maybe(dice, 0.3, lambda: constraint.update(nodeTaintsPolicy=dice.choice(("Honor", "Ignore"))))
    _maybe(dice, 0.2, lambda: constraint.update(matchLabelKeys=["version"]))
    return constraint


def _maybe(dice: random.Random, chance: float, act: Any) -> None:
    if dice.random() < chance:
        act()


def _some(dice: random.Random, choices: tuple[Any, ...], least: int) -> tuple[Any, ...]:
    return tuple(dice.sample(choices, dice.randint(least, len(choices))))
