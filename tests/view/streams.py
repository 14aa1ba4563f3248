"""Random streams of objects: random changes of a cluster."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from apportion.apis import names
from apportion.apis.installation import Installation
from apportion.apis.meta import to_wire
from tests.builders import accelerators, claims, nodes, pods, volumes
from tests.builders.accelerators import A100, T4
from tests.view import edits
from tests.view.objects import (
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    REPORTS,
    VOLUME_CLAIMS,
    VOLUMES,
    Cluster,
    key_of,
)
from tests.view.sharing.share_streams import ShareStream

Json = dict[str, Any]

GPUS = {"n1": ("mig", "mig"), "n2": ("mig",), "n3": ("mig", "whole", "whole"), "n4": ("static",), "n5": ()}
STATIC = {"nvidia.com/mig-2g.10gb": 3, "nvidia.com/mig-1g.5gb": 1}
LAYOUT = (("2g.10gb", 0, 2), ("2g.10gb", 2, 2), ("2g.10gb", 4, 2), ("1g.5gb", 6, 1))
WANTED: tuple[dict[str, int], ...] = (
    {"mig.das.com/1g.5gb": 1},
    {"mig.das.com/1g.5gb": 2},
    {"mig.das.com/2g.10gb": 1},
    {"mig.das.com/3g.20gb": 1},
    {"mig.das.com/7g.40gb": 1},
    {"nvidia.com/mig-2g.10gb": 1},
    {"nvidia.com/mig-2g.10gb": 2},
    {"nvidia.com/mig-1g.5gb": 1},
    {"nvidia.com/gpu": 1},
    {"nvidia.com/gpu": 2},
    {},
)
SCHEDULERS = (names.DAS_SCHEDULER, names.DAS_SCHEDULER, names.KAI_SCHEDULER, names.DEFAULT_SCHEDULER, "theirs")
STARTS = {"1g.5gb": range(7), "2g.10gb": (0, 2, 4), "3g.20gb": (0, 4), "7g.40gb": (0,)}
RESERVATIONS = Installation.reservation_namespace
NODES_OF = {names.NVIDIA_GPU: "n3", "nvidia.com/mig-2g.10gb": "n4", "nvidia.com/mig-1g.5gb": "n4"}


class Stream:
    """One random sequence of changes."""

    def __init__(self, cluster: Cluster, dice: random.Random) -> None:
        self.cluster = cluster
        self._dice = dice
        self._shares = ShareStream(cluster, dice)
        self._count = 0
        self._seconds = 0

    def begin(self) -> None:
        for name in ("default", names.DAS_NAMESPACE):
            self.cluster.put(NAMESPACES, {"metadata": {"name": name}})
        for kind in (True, False):
            self.cluster.put(CLASSES, volumes.storage_class("disks" if kind else "local", provisioned=kind))
        for name in GPUS:
            if self._dice.random() < 0.9:
                self._node(name)
                self._report(name)
                self._agent(name)
        self._shares.begin()

    def step(self) -> None:
        """Something happens."""
        steps: tuple[tuple[int, Callable[[], None]], ...] = (
            (5, lambda: self._node(self._any_node())),
            (2, lambda: self.cluster.remove(NODES, self._any_node())),
            (5, lambda: self._report(self._any_node())),
            (1, lambda: self.cluster.remove(REPORTS, f"{names.DAS_NAMESPACE}/{self._any_node()}")),
            (5, lambda: self._agent(self._any_node())),
            (1, lambda: self.cluster.remove(PODS, f"{names.DAS_NAMESPACE}/agent-{self._any_node()}")),
            (20, self._pod),
            (14, self._bind),
            (8, self._fill),
            (4, self._reservation_pod),
            (10, self._claims_only),
            (10, self._pod_goes_on),
            (6, self._remove_pod),
            (5, self._change_claim),
            (8, self._storage),
            (5, self._tell),
            (2, self._label_namespace),
            *self._shares.steps(),
        )
        weights = [weight for weight, _ in steps]
        self._dice.choices([act for _, act in steps], weights)[0]()

    def _any_node(self) -> str:
        return self._dice.choice(list(GPUS))

    def _chance(self, likelihood: float) -> bool:
        return self._dice.random() < likelihood

    # Nodes and agents

    def _node(self, name: str) -> None:
        flavours = GPUS[name]
        if not flavours:
            return
        devices: dict[str, int | str] = {**nodes.slice_devices(flavours.count("mig"))} if "mig" in flavours else {}
        devices |= {names.NVIDIA_GPU: flavours.count("whole")} if "whole" in flavours else {}
        devices |= STATIC if "static" in flavours else {}
        if self._chance(0.1) and devices:
            devices[self._dice.choice(list(devices))] = 0
        taint = {"key": "example.com/busy", "effect": "NoSchedule"}
        made = nodes.node(
            name,
            resources=devices,
            labels={"zone": self._dice.choice("ab")},
            taints=[taint] if self._chance(0.15) else (),
            cordoned=self._chance(0.15),
            mig_capable=not self._chance(0.05),
        )
        self.cluster.put(NODES, made)

    def _report(self, name: str) -> None:
        if not GPUS[name]:
            return
        gpus = [self._gpu(name, number, flavour) for number, flavour in enumerate(GPUS[name])]
        self._hold(name, gpus)
        ready = not self._chance(0.1)
        self.cluster.put(REPORTS, accelerators.accelerator(name, gpus, ready=ready, agent_uid=self._agent_uid(name)))

    def _gpu(self, node: str, number: int, flavour: str) -> Json:
        uuid = f"GPU-{node}-{number}"
        more: Json = {"healthy": not self._chance(0.08)}
        if flavour == "static":
            fixed = [
                {"profile": profile, "start": start, "size": size, "uuid": f"MIG-{node}-{start}"}
                for profile, start, size in LAYOUT
            ]
            return accelerators.gpu(uuid, **more, fixed=fixed) | {"profiles": []}
        if flavour == "mig" and self._chance(0.2):
            more["foreign"] = [
                {"start": self._dice.randrange(6), "size": 1, "profile": self._dice.choice(("", "1g.5gb"))}
            ]
        product = T4 if uuid == "GPU-n3-2" else A100  # two models on one node
        return accelerators.gpu(uuid, product=product, mig=flavour == "mig", **more)

    def _hold(self, node: str, gpus: list[Json]) -> None:
        """The kubelet has given some of the node's pods their devices."""
        whole = [gpu for gpu in gpus if not gpu["migEnabled"]]
        static = [piece for gpu in gpus for piece in gpu.get("fixed", ())]
        self._dice.shuffle(whole)
        for pod in self.cluster.all(PODS).values():
            if pod["spec"].get("nodeName") != node or self._chance(0.2):
                continue
            uid, asked = pod["metadata"]["uid"], _asked(pod)
            kind = "reservation" if pod["metadata"]["namespace"] == RESERVATIONS else "whole"
            for _ in range(min(len(whole), int(asked.get(names.NVIDIA_GPU, 0)))):
                whole.pop()["holders"] = [{"podUID": uid, "kind": kind}]
            for piece in static:
                if f"{names.NVIDIA_MIG_PREFIX}{piece['profile']}" in asked and "podUID" not in piece:
                    piece["podUID"] = uid
                    break

    def _agent_uid(self, node: str) -> str:
        return f"another-{node}" if self._chance(0.05) else f"agent-{node}"

    def _agent(self, name: str) -> None:
        key = f"{names.DAS_NAMESPACE}/{accelerators.agent_name(name)}"
        made = accelerators.agent_pod(name, ready=not self._chance(0.15), uid=self._agent_uid(name))
        known = self.cluster.all(PODS).get(key)
        if known is not None and known["metadata"]["uid"] != made["metadata"]["uid"]:
            self.cluster.remove(PODS, key)  # another pod of the same name
        self.cluster.put(PODS, made)

    # Pods

    def _pod(self) -> None:
        self._count += 1
        self._seconds += self._dice.choice((0, 1, 1, 2))
        scheduler = self._dice.choice(SCHEDULERS)
        asked = dict(self._dice.choice(WANTED))
        annotations = {}
        if scheduler == names.KAI_SCHEDULER and not asked:
            annotations[names.GPU_FRACTION] = self._dice.choice(("0.5", "0.5", "much"))
        if self._chance(0.05):
            annotations[names.POLICY] = self._dice.choice(("pack", "luck"))
        made = pod(
            f"p{self._count}",
            asked,
            scheduler=scheduler,
            created=f"2026-01-01T00:{self._seconds // 60:02}:{self._seconds % 60:02}Z",
            annotations=annotations,
            labels={"app": self._dice.choice("xyz")},
            gates=["example.com/wait"] if self._chance(0.1) else (),
            tolerations=[{"operator": "Exists"}] if self._chance(0.2) else [],
            selector={"zone": self._dice.choice("ab")} if self._chance(0.15) else None,
            volumes=[_volume(self._dice.choice("123"))] if self._chance(0.2) else [],
        )
        self.cluster.put(PODS, made)

    def _pick(self, fits: Callable[[Json], bool]) -> Json | None:
        ours = ("default/", f"{RESERVATIONS}/")
        found = [pod for key, pod in self.cluster.all(PODS).items() if key.startswith(ours) and fits(pod)]
        return self._dice.choice(found) if found else None

    def _bind(self) -> None:
        """A scheduler binds a pod, with claims for its slices."""
        pod = self._pick(lambda pod: not pod["spec"].get("nodeName") and not _deleting(pod))
        if pod is None:
            return
        usual = next((NODES_OF[name] for name in _asked(pod) if name in NODES_OF), "")
        others = list(self.cluster.all(NODES)) or ["n1"]
        node = self._claim(pod) or (usual if usual and self._chance(0.8) else self._dice.choice(others))

        def bound(obj: Json) -> None:
            obj["spec"]["nodeName"] = node
            obj["spec"].pop("schedulingGates", None)

        self.cluster.change(PODS, key_of(pod), bound)
        if usual == node and self._chance(0.6):
            self._report(node)  # the kubelet has given it its devices

    def _fill(self) -> None:
        """A pod that has all of a GPU, so that others find no place."""
        self._count += 1
        node = self._dice.choice(("n1", "n1", "n2", "n3"))
        made = pod(f"p{self._count}", {"mig.das.com/7g.40gb": 1}, node=node)
        self.cluster.put(PODS, made)
        numbers = [number for number, flavour in enumerate(GPUS[node]) if flavour == "mig"]
        uuid = f"GPU-{node}-{self._dice.choice(numbers)}"
        self.cluster.put(CLAIMS, claim(made, "7g.40gb", node=node, gpu=uuid, start=0))

    def _reservation_pod(self) -> None:
        """A pod that holds a GPU for pods that share it; at once, or some time later, its agent says which."""
        self._count += 1
        self.cluster.put(PODS, pod(f"p{self._count}", {names.NVIDIA_GPU: 1}, node="n3", namespace=RESERVATIONS))
        if self._chance(0.6):
            self._report("n3")

    def _tell(self) -> None:
        """A scheduler writes why a pod waits."""
        pod = self._pick(lambda pod: not pod["spec"].get("nodeName"))
        if pod is not None:
            told = {"type": "PodScheduled", "status": "False", "message": f"told {self._dice.randrange(100)}"}
            self.cluster.change(PODS, key_of(pod), lambda obj: obj["status"].update(conditions=[told]))

    def _label_namespace(self) -> None:
        labels = {"team": self._dice.choice("ab")}
        self.cluster.put(NAMESPACES, {"metadata": {"name": "default", "labels": labels}})

    def _claims_only(self) -> None:
        """A leader dies between claims and binding."""
        if self._chance(0.5):
            self._count += 1
            made = pod(f"p{self._count}", {"mig.das.com/1g.5gb": self._dice.choice((1, 2))})
            self.cluster.put(PODS, made)
            self._claim(made, complete=self._chance(0.7), tries=20)
            return
        found = self._pick(lambda pod: not pod["spec"].get("nodeName") and not _deleting(pod) and bool(_profiles(pod)))
        if found is not None:
            self._claim(found, complete=self._chance(0.7), tries=20 if self._chance(0.7) else 1)

    def _claim(self, pod: Json, *, complete: bool = True, tries: int = 1) -> str:
        """Claims for the pod's slices on places that may be taken already, after so many tries; gives their node."""
        wanted = _profiles(pod)
        if not wanted:
            return ""
        usable = [name for name in ("n1", "n2", "n3") if tries > 1 and self._usable(name)]
        node = self._dice.choice(usable or ("n1", "n1", "n2", "n3"))
        for index, profile in enumerate(wanted if complete else wanted[:-1]):
            home = self._any_node() if self._chance(0.03) else node
            numbers = [number for number, flavour in enumerate(GPUS[home]) if flavour == "mig"] or [0]
            for _ in range(tries):
                uuid = f"GPU-{home}-{self._dice.choice(numbers)}"
                start = self._dice.choice(list(STARTS[profile]))
                if not self._taken(uuid, start, claims.size_of(profile)):
                    break
            self.cluster.put(CLAIMS, claim(pod, profile, node=home, gpu=uuid, start=start, index=index))
        return node

    def _usable(self, node: str) -> bool:
        made = self.cluster.all(NODES).get(node)
        report = self.cluster.all(REPORTS).get(f"{names.DAS_NAMESPACE}/{node}")
        if made is None or report is None or made["spec"].get("unschedulable") or made["spec"].get("taints"):
            return False
        return bool(report["status"]["conditions"][0]["status"] == "True")

    def _taken(self, uuid: str, start: int, size: int) -> bool:
        places = [
            claim["spec"]["migPlacement"]
            for claim in self.cluster.all(CLAIMS).values()
            if claim["spec"]["gpuUUID"] == uuid
        ]
        return any(start < each["start"] + each["size"] and each["start"] < start + size for each in places)

    def _pod_goes_on(self) -> None:
        """A bound pod runs, ends, or is told to go; an unbound one is deleted or let through its gates."""
        pod = self._pick(lambda _: True)
        if pod is None:
            return
        key = key_of(pod)
        if not pod["spec"].get("nodeName"):
            gated = pod["spec"].get("schedulingGates") and self._chance(0.7)
            self.cluster.change(PODS, key, edits.let_through if gated else edits.delete)
            return
        possible = (
            edits.run,
            edits.run,
            edits.end,
            edits.delete,
            edits.delete_running,
            edits.delete_ended,
            edits.delete_but_sidecar,
        )
        self.cluster.change(PODS, key, self._dice.choice(possible))

    def _remove_pod(self) -> None:
        pod = self._pick(lambda _: True)
        if pod is None:
            return
        self.cluster.remove(PODS, key_of(pod))
        if self._chance(0.7):
            for key, claim in list(self.cluster.all(CLAIMS).items()):
                if claim["spec"]["podRef"]["uid"] == pod["metadata"]["uid"]:
                    self.cluster.remove(CLAIMS, key)

    def _change_claim(self) -> None:
        found = list(self.cluster.all(CLAIMS))
        if not found:
            return
        key = self._dice.choice(found)
        act = self._dice.choice(("delete", "remove", "move", "use"))
        if act == "remove":
            self.cluster.remove(CLAIMS, key)
        elif act == "delete":
            self.cluster.change(CLAIMS, key, edits.delete)
        elif act == "use":
            self.cluster.change(CLAIMS, key, lambda obj: obj["status"].update(state="inUse"))
        else:
            profile = self.cluster.all(CLAIMS)[key]["spec"]["profile"]
            start = self._dice.choice(list(STARTS[profile]))
            self.cluster.change(CLAIMS, key, lambda obj: obj["spec"]["migPlacement"].update(start=start))

    def _storage(self) -> None:
        number = self._dice.choice("123")
        act = self._dice.choice(("claim", "claim", "volume", "bound", "remove"))
        if act == "claim":
            kind = self._dice.choice(("disks", "local", "missing"))
            self.cluster.put(VOLUME_CLAIMS, volumes.volume_claim(f"data-{number}", kind))
        elif act == "volume":
            self.cluster.put(VOLUMES, volumes.volume(f"pv-{number}", "local", self._any_node()))
        elif act == "bound":
            self.cluster.put(VOLUMES, volumes.volume(f"pv-{number}", "local", self._any_node(), claim=f"data-{number}"))
            self.cluster.put(VOLUME_CLAIMS, volumes.volume_claim(f"data-{number}", "local", volume=f"pv-{number}"))
        else:
            self.cluster.remove(VOLUME_CLAIMS, f"default/data-{number}")


def pod(name: str, asked: dict[str, int], *, created: str = "2026-01-01T00:00:00Z", **options: Any) -> Json:
    """A pod of our scheduler that asks for these devices."""
    made = pods.our_pod(name, uid=f"uid-{name}", limits={"cpu": 1, **asked}, **options)
    made["metadata"]["creationTimestamp"] = created
    return {**made, "status": {"phase": "Pending"}}


def claim(pod: Json, profile: str, *, node: str, gpu: str, start: int, index: int = 0) -> Json:
    made = to_wire(claims.claim(pod, node=node, gpu=gpu, start=start, profile=profile, index=index))
    return {**made, "status": {"state": "created"}}


def _volume(number: str) -> Json:
    return {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{number}"}}


def _profiles(pod: Json) -> list[str]:
    """The profiles of a pod's slices, in the order of its claims."""
    asked = _asked(pod)
    return [
        name.removeprefix(names.SLICE_PREFIX)
        for name, count in sorted(asked.items())
        if name.startswith(names.SLICE_PREFIX)
        for _ in range(int(count))
    ]


def _asked(pod: Json) -> dict[str, str]:
    found: dict[str, str] = pod["spec"]["containers"][0]["resources"].get("limits", {})
    return found


def _deleting(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]
