"""Requests of somebody who wants the API server to stop: deep, huge, of wrong types, badly encoded, slow."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.pocketkube.api.direct_requests import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

JSON = dict[str, Any]
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
KINDS = ("configmaps", "pods", "secrets", "services", "events", "resourcequotas")
NAMES = ("metadata", "name", "spec", "status", "data", "containers", "$patch", "$retainKeys", "finalizers", "env")
VALUES: tuple[Any, ...] = (None, True, 0, -1, 2**40, 2**70, 1.5, 1e300, "", "x", "\0", "é", "x" * 300, [], {}, [[]])
QUERIES = (
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "dryRun",
    "timeoutSeconds",
    "force",
)


@dataclass(frozen=True)
class Attack:
    """One request. `slow`: its end is never sent."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    slow: bool = False


class Hostile:
    """A seeded source of requests in one namespace. One in `rarity` is huge."""

    def __init__(self, seed: int, namespace: str, rarity: int = 60) -> None:
        self._random = random.Random(seed)
        self._base = f"/api/v1/namespaces/{namespace}"
        self._rarity = rarity
        self._small = (
            *(self.wrong_types, self.wrong_types, self.wrong_types, self.deep, self.badly_encoded, self.protobuf),
            *(self.patched, self.patched, self.queried, self.with_many_headers, self.yaml, self.slow, self.numbers),
        )
        self._huge = (self.empty_lists, self.long_text, self.long_names, self.many_containers, self.many_keys)
        self._huge_patches = (
            self.copies,
            self.many_operations,
            self.many_tolerations,
            self.compressed,
            self.yaml_lists,
        )

    def attack(self) -> Attack:
        huge = self._random.randrange(self._rarity) == 0
        chosen: Callable[[], Attack] = self._random.choice((*self._huge, *self._huge_patches) if huge else self._small)
        return chosen()

    # Small ones

    def wrong_types(self) -> Attack:
        body = json.dumps(self._spoilt(_GOOD)).encode()
        return self._sent(self._path(), body)

    def deep(self) -> Attack:
        depth = self._random.choice((150, 250, 900, 20_000))
        opening, closing = self._random.choice(((b'{"a":', b"}"), (b"[", b"]"), (b'{"metadata":', b"}")))
        return self._sent(
            self._path(), b'{"metadata":{"name":"d"},"x":' + opening * depth + b"1" + closing * depth + b"}"
        )

    def badly_encoded(self) -> Attack:
        good = json.dumps(_GOOD)
        body = self._random.choice(
            (
                good.encode("utf-16"),
                b"\xff\xfe" + good.encode(),
                good.encode()[:-3],
                self._random.randbytes(200),
                b"\0" * 50,
            )
        )
        media = self._random.choice(("application/json", "application/yaml", "text/plain", "x", PROTOBUF))
        encoding = self._random.choice(({}, {"Content-Encoding": "gzip"}, {"Content-Encoding": "deflate"}))
        return self._sent(self._path(), body, media, encoding)

    def protobuf(self) -> Attack:
        return self._sent(self._path(), b"k8s\0" + self._random.randbytes(self._random.randrange(500)), PROTOBUF)

    def patched(self) -> Attack:
        media = self._random.choice(PATCHES)
        patch: Any = self._noise(0)
        if media == JSON_PATCH:
            patch = [self._operation() for _ in range(self._random.randrange(8))]
        query = "?fieldManager=m&force=true" if media == APPLY_PATCH else ""
        return Attack("PATCH", f"{self._path()}/x{query}", json.dumps(patch).encode(), {"Content-Type": media})

    def queried(self) -> Attack:
        terms = ",".join(self._random.choice(("!a", "a=b", "a in (b,c)", "a!=", ",", "=")) for _ in range(200))
        value = self._random.choice((terms, "9" * 5_000, "-1", "%00", "x" * 5_000, "metadata.name=" + "y" * 900))
        query = f"{self._random.choice(QUERIES)}={value.replace(' ', '%20')}"
        watch = "watch=true&timeoutSeconds=1&" if self._random.random() < 0.2 else ""  # the first value counts
        accept = {"Accept": self._random.choice(("", TABLE, "application/yaml", "x" * 1000))}
        return Attack("GET", f"{self._path()}?{watch}{query}", headers=accept)

    def with_many_headers(self) -> Attack:
        groups = {f"Impersonate-Extra-{index}": "x" for index in range(self._random.choice((5, 100, 400)))}
        return Attack("GET", self._path(), headers={"Impersonate-User": "u", **groups})

    def yaml(self) -> Attack:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, self._random.choice((2, 5, 12)))]
        body = self._random.choice(
            ("\n".join(lines), "&a [*a]", "? [a]\n: b", "!!python/object:x {}", "a: 0o7\nb: .inf")
        )
        return self._sent(self._path(), body.encode(), "application/yaml")

    def numbers(self) -> Attack:
        amount = self._random.choice(("1e999999999", "9" * 200, "-1", "1.5e-400", "0x10", "NaN"))
        container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": amount, "memory": 10**60}}}
        replicas = self._random.choice((10**400, -(10**30), 1e308))
        spec = {"containers": [container], "activeDeadlineSeconds": replicas}
        return self._sent(f"{self._base}/pods", json.dumps({"metadata": {"name": "n"}, "spec": spec}).encode())

    def slow(self) -> Attack:
        return Attack("POST", self._path(), b'{"metadata":', {"Content-Type": "application/json"}, slow=True)

    # Huge ones

    def empty_lists(self) -> Attack:
        return self._sent(self._path(), b'{"metadata":{"name":"e"},"x":[' + b"[]," * 900_000 + b"[]]}")

    def long_text(self) -> Attack:
        return self._sent(
            self._path(), json.dumps({"metadata": {"name": "l"}, "data": {"a": "x" * 2_900_000}}).encode()
        )

    def long_names(self) -> Attack:
        labels = {f"{'k' * 2_000}{index}": "v" * 2_000 for index in range(600)}
        return self._sent(self._path(), json.dumps({"metadata": {"name": "l", "labels": labels}}).encode())

    def many_containers(self) -> Attack:
        listed = [{"name": f"c{index}", "image": "i"} for index in range(self._random.choice((2_000, 12_000)))]
        body = {"metadata": {"name": f"big{self._random.randrange(3)}"}, "spec": {"containers": listed}}
        return self._sent(f"{self._base}/pods", json.dumps(body).encode())

    def many_keys(self) -> Attack:
        body = {"metadata": {"name": f"keys{self._random.randrange(3)}"}, "data": {f"k{n}": "v" for n in range(50_000)}}
        return self._sent(f"{self._base}/configmaps", json.dumps(body).encode())

    def copies(self) -> Attack:
        patch = [{"op": "copy", "from": "/metadata", "path": f"/metadata/n{index}"} for index in range(40)]
        return Attack("PATCH", f"{self._base}/configmaps/x", json.dumps(patch).encode(), {"Content-Type": JSON_PATCH})

    def many_operations(self) -> Attack:
        count = self._random.choice((9_999, 10_001))
        patch = [{"op": "add", "path": f"/data/k{index}", "value": "v"} for index in range(count)]
        path = f"{self._base}/configmaps/x?dryRun=All"
        return Attack("PATCH", path, json.dumps(patch).encode(), {"Content-Type": JSON_PATCH})

    def many_tolerations(self) -> Attack:
        listed = [{"key": f"k{index}", "operator": "Exists"} for index in range(15_000)]
        path, media = f"{self._base}/pods/x?dryRun=All", self._random.choice((MERGE_PATCH, STRATEGIC_PATCH))
        return Attack("PATCH", path, json.dumps({"spec": {"tolerations": listed}}).encode(), {"Content-Type": media})

    def compressed(self) -> Attack:
        bomb = gzip.compress(b" " * 20_000_000)
        return self._sent(self._path(), bomb, extra={"Content-Encoding": "gzip"})

    def yaml_lists(self) -> Attack:
        return self._sent(self._path(), b"metadata: {name: y}\nx: [" + b"[], " * 300_000 + b"]", "application/yaml")

    # Parts

    def _path(self) -> str:
        return f"{self._base}/{self._random.choice(KINDS)}"

    def _sent(
        self, path: str, body: bytes, media: str = "application/json", extra: dict[str, str] | None = None
    ) -> Attack:
        method = self._random.choice(("POST", "POST", "POST", "PUT", "DELETE"))
        path = path if method == "POST" else f"{path}/x"
        return Attack(method, path, body, {"Content-Type": media, **(extra or {})})

    def _operation(self) -> JSON:
        choose = self._random.choice
        path = "".join(f"/{choose((*NAMES, '0', '-'))}" for _ in range(self._random.randrange(5)))
        return {
            "op": choose(("add", "remove", "replace", "move", "copy", "test", "?")),
            "path": path,
            "from": "/metadata",
        }

    def _noise(self, depth: int) -> Any:
        chance = self._random.random()
        if depth > 4 or chance < 0.4:
            return self._random.choice(VALUES)
        if chance < 0.6:
            return [self._noise(depth + 1) for _ in range(self._random.randrange(4))]
        return {self._random.choice(NAMES): self._noise(depth + 1) for _ in range(self._random.randrange(5))}

    def _spoilt(self, value: Any) -> Any:
        if self._random.random() < 0.12:
            return self._noise(2)
        if isinstance(value, dict):
            return {name: self._spoilt(inner) for name, inner in value.items()}
        return [self._spoilt(inner) for inner in value] if isinstance(value, list) else value


_GOOD: JSON = {
    "metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": [], "ownerReferences": []},
    "data": {"a": "b"},
    "spec": {
        "containers": [
            {"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 1}]}
        ],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "ports": [{"port": 80}],
        "hard": {"pods": "5"},
    },
}
