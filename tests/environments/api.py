"""A few lines of plain HTTP to a Kubernetes API, for fixtures: no informer, no retries, no types."""

from __future__ import annotations

import base64
import http
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

JSON = dict[str, Any]
_JSON = "application/json"


class RefusedError(AssertionError):
    """The API said no."""

    def __init__(self, method: str, path: str, code: int, body: str) -> None:
        super().__init__(f"{method} {path}: {code} {body[:500]}")
        self.code = code
        self.body = body


class Api:
    """One kubeconfig, one connection that is opened again when the server has closed it. For one thread."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        context = _named(content["contexts"], content["current-context"])["context"]
        cluster = _named(content["clusters"], context["cluster"])["cluster"]
        self._user = _named(content["users"], context["user"])["user"]
        address = urlsplit(cluster["server"])
        assert address.hostname is not None
        data = cluster.get("certificate-authority-data")
        tls = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"), cadata=_decoded(data) if data else None
        )
        self._connect = partial(http.client.HTTPSConnection, address.hostname, address.port, context=tls, timeout=30)
        self._connection = self._connect()

    def get(self, path: str, *, accept: str = _JSON) -> JSON:
        answer: JSON = json.loads(self.send("GET", path, accept=accept))
        return answer

    def items(self, path: str) -> list[JSON]:
        return list(self.get(path)["items"])

    def exists(self, path: str) -> bool:
        try:
            self.send("GET", path)
        except RefusedError as error:
            if error.code == 404:
                return False
            raise
        return True

    def create(self, path: str, body: JSON) -> JSON:
        answer: JSON = json.loads(self.send("POST", path, body))
        return answer

    def merge(self, path: str, body: JSON) -> JSON:
        answer: JSON = json.loads(self.send("PATCH", path, body, "application/merge-patch+json"))
        return answer

    def watch(self, path: str, resource_version: str, *, seconds: int) -> Iterator[JSON]:
        """The changes of a collection, on a connection of their own, until the server ends the watch."""
        connection = self._connect()
        query = f"watch=true&resourceVersion={resource_version}&timeoutSeconds={seconds}"
        headers = {"Authorization": f"Bearer {self._user['token']}", "Accept": _JSON}
        try:
            connection.request("GET", f"{path}?{query}", None, headers)
            answer = connection.getresponse()
            for line in answer:
                yield json.loads(line)
        finally:
            connection.close()

    def delete(self, path: str, options: JSON | None = None) -> None:
        try:
            self.send("DELETE", path, options)
        except RefusedError as error:
            if error.code != 404:
                raise

    def send(self, method: str, path: str, body: JSON | None = None, kind: str = _JSON, *, accept: str = "*/*") -> str:
        encoded = json.dumps(body) if body is not None else None
        headers = {"Authorization": f"Bearer {self._user['token']}", "Content-Type": kind, "Accept": accept}
        code, text = self._ask(method, path, encoded, headers)
        for _ in range(20):
            if code != http.HTTPStatus.TOO_MANY_REQUESTS:
                break
            # Seen while the storage of a new kind is being made.
            time.sleep(0.5)
            code, text = self._ask(method, path, encoded, headers)
        if code >= http.HTTPStatus.BAD_REQUEST:
            raise RefusedError(method, path, code, text)
        return text

    def _ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> tuple[int, str]:
        reused = self._connection.sock is not None
        try:
            return self._exchange(method, path, body, headers)
        except (http.client.HTTPException, OSError):
            self._connection.close()
            if not reused:
                raise
            return self._exchange(method, path, body, headers)

    def _exchange(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> tuple[int, str]:
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read().decode()


def _named(entries: list[JSON], name: str) -> JSON:
    return next(entry for entry in entries if entry["name"] == name)


def _decoded(data: str) -> str:
    return base64.b64decode(data).decode()
