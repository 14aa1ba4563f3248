"""Unusual reviews, generated from a seed: odd amounts, missing and huge parts, wrong kinds."""

from __future__ import annotations

import json
import random
import uuid
from typing import Any, NamedTuple

Json = dict[str, Any]

PROFILES = (
    "2g.20gb",
    "1g.10gb",
    "7g.70gb",
    "7g.80gb",
    "3g.40gb",
    "1g.5gb",
    "1g.5gb.me",
    "1g.5gb-plus-me",
    "9g.9gb",
    "",
    "x",
)
AMOUNTS: tuple[Any, ...] = ("1", "2", 1, "0", 0, "01", "+1", "1.0", "1000m", "1e0", "-1", "1.5", "1k", "1Ki", "", None)
ODD: tuple[Any, ...] = ("\u0661", "NaN", 10**30, "9" * 400, True, [], {}, 1.5, "1 ", "\x00", "\ud83d\ude00", "💾")
TEXTS = ("a", "", "ünïcödé", "💾" * 20, "x" * 300, "a/b/c", "a=b", "\t", "%s%s", "../..", "{}", "null")
ANNOTATIONS: dict[str, tuple[str, ...]] = {
    "apportion.io/fallback-tiers": ("2g.20gb > 1g.10gb", "7g.70gb,1g.10gb", "1g.10gb > 2g.20gb", ">", "nonsense"),
    "apportion.io/fallback-at-end": ("pend", "reject", "maybe"),
    "apportion.io/fallback-keep-memory": ("true", "false", "yes"),
    "apportion.io/fallback-nodes": ("node-pool=small", "=", "a=b,c"),
    "apportion.io/gpu-affinity": ("NVIDIA-H200", ",", "A,B"),
    "apportion.io/mig": ("static", "dynamic", "both"),
    "apportion.io/injected-memory": ('{"main":10}', "{", "[]"),
    "gpu-webhook.k8s.io/fallback": ("2g.20gb->1g.10gb", "->", "x"),
    "gpu-fraction": ("0.5", "2"),
    "cdi.k8s.io/x": ("nvidia.com/gpu=all",),
}


class Generated(NamedTuple):
    path: str
    body: bytes
    obj: Any
    plain: bool
    """A pod's creation whose parts all have the right types: an API server would send it."""


def generate(dice: random.Random) -> Generated:
    path = dice.choice(["/mutate-fallback", "/mutate-fallback", "/mutate-slices", "/validate"])
    wild = dice.random() < 0.4
    pod = _pod(dice, wild=wild)
    kind, group, obj = "Pod", "", pod
    if dice.random() < 0.15:
        kind, group = dice.choice([("Job", "batch"), ("Deployment", "apps"), ("Node", ""), ("💾", "x")])
        obj = {"metadata": pod.get("metadata"), "spec": {"template": pod}}
    operation = dice.choice(["CREATE"] * 6 + ["UPDATE", "UPDATE", "DELETE", "CONNECT", "", "💾"])
    old = _pod(dice, wild=wild) if operation == "UPDATE" else None
    request: Json = {
        "uid": str(uuid.UUID(int=dice.getrandbits(128))),
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": f"{kind.lower()}s"},
        "namespace": "default",
        "operation": operation,
        "object": obj,
        "oldObject": old,
        "dryRun": dice.random() < 0.9,
    }
    if dice.random() < 0.05:
        request["subResource"] = dice.choice(["status", "ephemeralcontainers", "💾"])
    plain = not wild and kind == "Pod" and operation == "CREATE" and "subResource" not in request
    review: Any = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    if dice.random() < 0.08:
        plain = False
        review = _broken(dice, review)
    body = json.dumps(review).encode()
    if dice.random() < 0.03:
        plain = False
        body = body[: dice.randrange(len(body))]
    return Generated(path, body, obj, plain)


def _pod(dice: random.Random, *, wild: bool) -> Json:
    containers = [_container(dice, f"c{index}", wild=wild) for index in range(dice.choice([1, 1, 1, 2, 3]))]
    spec: Json = {"containers": containers}
    if dice.random() < 0.2:
        spec["initContainers"] = [_container(dice, "i0", wild=wild)]
    if dice.random() < 0.2:
        spec["schedulerName"] = dice.choice(["default-scheduler", "das-scheduler", "kai-scheduler", "theirs"])
    if dice.random() < 0.2:
        spec["nodeSelector"] = {"node-pool": dice.choice(["small", "medium", "none"])}
    if dice.random() < 0.1:
        spec["tolerations"] = [{"operator": "Exists"}]
    metadata: Json = {"name": "generated", "namespace": "default"}
    chosen = dice.sample(sorted(ANNOTATIONS), k=dice.choice([0, 0, 0, 1, 2]))
    if chosen:
        metadata["annotations"] = {name: dice.choice(ANNOTATIONS[name]) for name in chosen}
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    if dice.random() < 0.02:
        metadata.setdefault("annotations", {})["huge"] = "💾" * 60_000
    if wild:
        _spoil(dice, pod)
    return pod


def _container(dice: random.Random, name: str, *, wild: bool) -> Json:
    resources: Json = {}
    usual = dice.random() < 0.7
    for section in ("limits",) if usual else dice.choice([("limits",), ("requests",), ("limits", "requests")]):
        resources[section] = {
            _resource(dice, usual=usual): dice.choice(("1", "2") if usual else AMOUNTS[:-2] + (ODD if wild else ()))
            for _ in range(dice.choice([1, 1, 2]))
        }
    container: Json = {"name": name, "image": "busybox:1.36", "resources": resources}
    if dice.random() < 0.1:
        container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": dice.choice(["all", "void", "none", "0"])}]
    return container


def _resource(dice: random.Random, *, usual: bool) -> str:
    if usual:
        return "nvidia.com/mig-" + dice.choice(["2g.20gb", "7g.70gb", "3g.40gb", "1g.5gb"])
    prefix = dice.choice(["nvidia.com/mig-"] * 5 + ["mig.das.com/"] * 2 + ["nvidia.com/"])
    if dice.random() < 0.1:
        return dice.choice(["cpu", "memory", "nvidia.com/gpu", "gpu.das.com/mem", "example.com/x"])
    return prefix + dice.choice(PROFILES[:4] * 3 + PROFILES)


def _spoil(dice: random.Random, value: Any) -> None:
    """Put invalid values into one or more places."""
    for _ in range(dice.choice([1, 1, 2, 4])):
        at = value
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = dice.choice(keys)
            inner = at[key]
            if isinstance(inner, dict | list) and inner and dice.random() < 0.8:
                at = inner
                continue
            at[key] = dice.choice(
                [None, "", 0, -1, True, [], {}, [None], {"": None}, dice.choice(TEXTS), 10**40, 1e300]
            )
            break


def _broken(dice: random.Random, review: Json) -> Any:
    choice = dice.randrange(6)
    if choice == 0:
        return {**review, "apiVersion": dice.choice(["admission.k8s.io/v1beta1", "v1", "", "admission.k8s.io/v9"])}
    if choice == 1:
        return {**review, "kind": dice.choice(["Pod", "", "AdmissionReviewList"])}
    if choice == 2:
        review["request"].pop(dice.choice(sorted(review["request"])))
        return review
    if choice == 3:
        review["request"][dice.choice(sorted(review["request"]))] = dice.choice([None, 1, [], "💾", {}])
        return review
    return dice.choice([None, [], "x", 1, {}, {"request": {}}])
