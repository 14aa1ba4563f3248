"""Asking the webhook as an API server does: over TLS, trusting only the bundle it was given."""

from __future__ import annotations

import base64
import json
import ssl
from typing import Any

import aiohttp
import jsonpatch


def review(
    obj: dict[str, Any], *, old: dict[str, Any] | None = None, operation: str = "CREATE", **request: Any
) -> dict[str, Any]:
    group, _, version = obj.get("apiVersion", "v1").rpartition("/")
    kind = obj.get("kind", "Pod")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "7b0c0c9e-7a64-4bd9-b4d3-1fcc39a8f2a1",
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": f"{kind.lower()}s"},
            "namespace": "default",
            "name": obj.get("metadata", {}).get("name", ""),
            "operation": operation,
            "userInfo": {"username": "someone"},
            "object": obj,
            "oldObject": old,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
            **request,
        },
    }


class Asker:
    """One API server's connection to the webhook."""

    def __init__(self, port: int, bundle: bytes, name: str, host: str = "127.0.0.1") -> None:
        self._context = ssl.create_default_context(cadata=bundle.decode())
        self._url = f"https://{host}:{port}"
        self._name = name

    async def post(self, path: str, body: bytes, content_type: str = "application/json") -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                self._url + path,
                data=body,
                headers={"Content-Type": content_type},
                ssl=self._context,
                server_hostname=self._name,
            ) as response,
        ):
            return response.status, await response.text()

    async def ask(self, question: dict[str, Any], path: str = "/mutate-slices") -> dict[str, Any]:
        status, text = await self.post(path, json.dumps(question).encode())
        assert status == 200, text
        answer: dict[str, Any] = json.loads(text)
        assert answer["apiVersion"] == "admission.k8s.io/v1"
        assert answer["kind"] == "AdmissionReview"
        assert answer["response"]["uid"] == question["request"]["uid"]
        response: dict[str, Any] = answer["response"]
        return response


def applied(obj: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """The object as the API server stores it after this answer."""
    assert response["allowed"] is True, response
    if "patch" not in response:
        return obj
    assert response["patchType"] == "JSONPatch"
    patched: dict[str, Any] = jsonpatch.apply_patch(obj, json.loads(base64.b64decode(response["patch"])))
    return patched
