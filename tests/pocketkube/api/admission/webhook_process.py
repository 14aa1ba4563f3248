"""A webhook server whose paths say how it behaves: allowing, denying, slow, or with invalid answers.

Runs as a process of its own (`webhook_process.py CERTIFICATE KEY LOG`), because a real API server lives in a network of
its own. Prints its port. Every request it gets is a line of the log.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

Obj = dict[str, Any]


def respond(name: str, request: Obj) -> Obj:  # noqa: C901, PLR0911  one case per behaviour
    """The response part of the review."""
    uid = request["uid"]
    match name.split("="):
        case ["allow"]:
            return {"uid": uid, "allowed": True}
        case ["warn"]:
            return {"uid": uid, "allowed": True, "warnings": ["beware of the dog"]}
        case ["deny"]:
            return {"uid": uid, "allowed": False, "status": {"code": 409, "reason": "Conflict", "message": "no"}}
        case ["deny-silently"]:
            return {"uid": uid, "allowed": False}
        case ["wrong-uid"]:
            return {"uid": "other", "allowed": True}
        case ["patch-without-type"]:
            return {"uid": uid, "allowed": True, "patch": encoded([])}
        case ["patch-undecodable"]:
            return {"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": "AAAA"}
        case ["patch-misses"]:
            return patch(uid, [{"op": "remove", "path": "/metadata/labels/none/there"}])
        case ["patch-empty"]:
            return patch(uid, [])
        case ["container"]:
            sidecar = {"name": "added", "image": "busybox"}
            present = any(each["name"] == "added" for each in request["object"]["spec"]["containers"])
            return patch(uid, [] if present else [{"op": "add", "path": "/spec/containers/-", "value": sidecar}])
        case ["label", key, value]:
            labels = (request["object"]["metadata"].get("labels") or {}) | {key: value}
            return patch(uid, [{"op": "add", "path": "/metadata/labels", "value": labels}])
        case ["count"]:
            number = len(request["object"]["spec"]["containers"])
            labels = (request["object"]["metadata"].get("labels") or {}) | {"counted": str(number)}
            return patch(uid, [{"op": "add", "path": "/metadata/labels", "value": labels}])
    raise web.HTTPNotFound


def patch(uid: str, operations: list[Obj]) -> Obj:
    return {"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": encoded(operations)}


def encoded(operations: list[Obj]) -> str:
    return base64.b64encode(json.dumps(operations).encode()).decode()


async def main(certificate: str, key: str, log: str) -> None:
    async def answer(incoming: web.Request) -> web.StreamResponse:
        name = incoming.match_info["name"]
        review = await incoming.json()
        with Path(log).open("a") as file:  # noqa: ASYNC230  a test's log
            file.write(json.dumps({"path": name, "query": incoming.query_string, **review["request"]}) + "\n")
        if name == "hang":
            await asyncio.sleep(3600)
        if name == "garbage":
            return web.Response(text="not json")
        if name == "absent":
            return web.json_response({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"})
        if name == "broken":
            return web.Response(status=500, text="broken")
        head = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        if name == "old-version":
            return web.json_response({**head, "apiVersion": "x/v9", "response": respond("allow", review["request"])})
        return web.json_response({**head, "response": respond(name, review["request"])})

    application = web.Application()
    application.router.add_post("/{name}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    await web.TCPSite(runner, "0.0.0.0", 0, ssl_context=context).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
