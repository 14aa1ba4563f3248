"""HTTP/1.1 as far as admission and probes need it: a request with a known length, and a response."""

from __future__ import annotations

import http
from collections.abc import Mapping
from dataclasses import dataclass, field

END_OF_HEAD = b"\r\n\r\n"


class BadRequestError(Exception):
    """A request that is answered with this status, and whose connection is then closed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Head:
    """The request line and the headers, whose names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    version: str = "HTTP/1.1"

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def keep_alive(self) -> bool:
        wanted = self.headers.get("connection", "").lower()
        return wanted == "keep-alive" if self.version == "HTTP/1.0" else wanted != "close"

    def length(self, most: int) -> int:
        """The bytes of the body. Chunked bodies are refused: their cost is known only once they are read."""
        if "transfer-encoding" in self.headers:
            raise BadRequestError(411, "send the body with a Content-Length, not with a Transfer-Encoding")
        text = self.headers.get("content-length", "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 20):  # noqa: PLR2004  no larger number is a length
            raise BadRequestError(400, "the Content-Length is not a number")
        if int(text) > most:
            raise BadRequestError(413, f"the body is larger than {most} bytes")
        return int(text)


@dataclass(frozen=True)
class Response:
    """What is sent back."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, *, close: bool) -> bytes:
        lines = [
            f"HTTP/1.1 {self.status} {http.HTTPStatus(self.status).phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            *(["Connection: close"] if close else []),
        ]
        return "\r\n".join(lines).encode("ascii") + END_OF_HEAD + self.body


def text(status: int, words: str) -> Response:
    """A sentence; whoever is told to come back later is told when."""
    headers = {"Retry-After": "1"} if status == http.HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Response(status, f"{words}\n".encode(), headers=headers)


def parse_head(raw: bytes) -> Head:
    """From everything before the empty line. Raises BadRequestError."""
    try:
        first, *rest = raw.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise BadRequestError(400, "the request has characters outside of ASCII in its head") from None
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] not in {"HTTP/1.1", "HTTP/1.0"}:  # noqa: PLR2004  method, target, version
        raise BadRequestError(400, "the first line is not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in rest:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or name in headers.keys() & _SINGLE:
            raise BadRequestError(400, "a header line is not valid")
        headers[name] = value.strip()
    return Head(parts[0], parts[1].partition("?")[0], headers, parts[2])


_SINGLE = {"content-length", "transfer-encoding", "content-encoding", "content-type"}
"""Two of these contradict each other."""
