"""Hostile requests against a webhook, from a process of its own: `python -m tests.admission.hostile.attack PORT ...`.

Prints how many got which status as JSON; 0 is a connection that was closed without an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
import ssl
import uuid
from collections import Counter
from collections.abc import Callable

from tests.admission.fallback.generating import generate
from tests.admission.hostile.clients import SlowClient
from tests.admission.reviews import review
from tests.builders.pods import fallback_pod

AT_ONCE = 24
SLOW_SECONDS = 6.0
NAMESPACES = ("default", "kube-system", "greedy", "nowhere", "\n2026-01-01T00:00:00 INFO webhook forged", "")
PATHS = ("/mutate-fallback", "/mutate-slices", "/validate")


class Attack:
    """Everything that comes to mind, from a seed."""

    def __init__(self, port: int, name: str, seed: int) -> None:
        self.statuses: Counter[int] = Counter()
        self._port = port
        self._name = name
        self._dice = random.Random(seed)
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._kinds: list[tuple[int, Callable[[], bytes]]] = [
            (30, self._generated),
            (15, self._forged),
            (10, self._nested),
            (4, self._stuffed),
            (10, self._encoded),
            (10, self._not_http),
            (8, self._long_names),
            (5, self._many_rules),
        ]

    async def run(self, count: int) -> None:
        left = iter(range(count))

        async def lane() -> None:
            for _ in left:
                try:
                    self.statuses[await self._one()] += 1
                except (OSError, ssl.SSLError):
                    self.statuses[0] += 1

        await asyncio.gather(*(lane() for _ in range(AT_ONCE)))

    async def _one(self) -> int:
        stage = self._dice.random()
        plain = stage < 0.03  # no TLS at all: the handshake never ends
        sent = b"\x16\x03" if plain else self._dice.choices(*zip(*((f, w) for w, f in self._kinds), strict=True))[0]()
        slow = plain or stage < 0.12
        if slow and not plain:
            sent = sent[: self._dice.randrange(len(sent))]
        client = await SlowClient.open(self._port, None if plain else self._context, self._name, sent)
        try:
            if slow:
                await asyncio.sleep(self._dice.random() * SLOW_SECONDS)
                return 0
            return await client.status()
        finally:
            client.close()

    def _request(self, body: bytes, path: str = "", headers: bytes = b"") -> bytes:
        path = path or self._dice.choice(PATHS)
        head = f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + headers + b"\r\n" + body

    def _review(self) -> bytes:
        pod = fallback_pod(name="forged", limits={"nvidia.com/mig-2g.20gb": 1})
        namespace = self._dice.choice(NAMESPACES)
        return json.dumps(
            review(pod, namespace=namespace, uid=str(uuid.UUID(int=self._dice.getrandbits(128))))
        ).encode()

    def _generated(self) -> bytes:
        made = generate(self._dice)
        return self._request(made.body, made.path)

    def _forged(self) -> bytes:
        return self._request(self._review(), "/mutate-fallback")

    def _nested(self) -> bytes:
        opening = self._dice.choice([b"[", b'{"a":', b'{"spec":'])
        deep = opening * self._dice.choice([100, 2_000, 100_000])
        return self._request(self._review().replace(b'"busybox:1.36"', deep))

    def _stuffed(self) -> bytes:
        filling = self._dice.choice([b"[],", b"{},", b'"",', b"1,", b'{"name":"a"},', b'[{"a":[]}],', b"null,"])
        size = self._dice.choice([200_000, 1_500_000, 8_000_000])
        many = (filling * (size // len(filling)))[:-1]
        place = self._dice.choice([b'"busybox:1.36"', b'"1"', b'"forged"'])
        return self._request(self._review().replace(place, b"[" + many + b"]"))

    def _encoded(self) -> bytes:
        body = self._review()
        bodies = [
            (b"gzip", body),
            (b"gzip", gzip.compress(body)),
            (b"gzip", gzip.compress(b"[" * 60_000_000, 1)),
            (b"deflate", body),
            (b"identity", body.decode().encode("utf-16")),
            (b"identity", body.replace(b"forged", b"\xff\xfe")),
            (b"identity", body.replace(b"forged", b"\\ud800")),
        ]
        encoding, sent = self._dice.choice(bodies)
        return self._request(sent, headers=b"Content-Encoding: " + encoding + b"\r\n")

    def _not_http(self) -> bytes:
        return self._dice.choice(
            [
                self._dice.randbytes(200) + b"\r\n\r\n",
                b"POST / HTTP/9\r\n\r\n",
                b"GET /metrics HTTP/1.1\r\n\r\n",
                b"POST /validate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
                b"POST /validate HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9999999999\r\n\r\n",
                b"POST /validate HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n",
            ]
        )

    def _long_names(self) -> bytes:
        body = json.loads(self._review())
        field = self._dice.choice(["uid", "name", "namespace", "operation"])
        body["request"][field] = "x\n" * self._dice.choice([100, 1_000_000])
        return self._request(json.dumps(body).encode())

    def _many_rules(self) -> bytes:
        body = json.loads(self._review())
        spec = body["request"]["object"]["spec"]
        field = self._dice.choice(["tolerations", "volumes", "initContainers", "topologySpreadConstraints"])
        spec[field] = [{"key": f"k{number}", "name": f"n{number}"} for number in range(20_000)]
        return self._request(json.dumps(body).encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("name")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    given = parser.parse_args()
    attack = Attack(given.port, given.name, given.seed)
    asyncio.run(attack.run(given.count))
    print(json.dumps(attack.statuses))


if __name__ == "__main__":
    main()
